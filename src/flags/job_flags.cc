// Declaration of the job flags: one function per group of the help. Here: what
// a job works on and what it leaves.
#include "elasticdl/flags/job_flags.h"

#include "absl/status/status.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr char kModel[] = "Model";
constexpr char kData[] = "Data";
constexpr char kTraining[] = "Training";
constexpr char kEvaluation[] = "Evaluation";
constexpr char kCheckpoint[] = "Checkpoints";
constexpr char kOutput[] = "Output and logs";

absl::Status CheckModelParams(const std::string& text) {
  return ParseKeyValues(text).status();
}
// Flags are parsed before the program arms any failpoint, so that leaving them
// disarmed changes nothing.
absl::Status CheckFailpoints(const std::string& text) {
  absl::Status status = InitFailpoints(text);
  InitFailpoints("").IgnoreError();
  return status;
}

void AddModel(JobCommand command, JobFlags* f, FlagSet* set) {
  set->Add("model_zoo", &f->model_zoo,
           Info(kModel,
                "Root folder of the model files. Default with --image: "
                "/model_zoo, where zoo build puts it.")
               .Value("DIR"));
  set->Add("model_def", &f->model_def,
           Info(kModel,
                "The model: mnist.mnist_functional_api.custom_model is "
                "custom_model in mnist/mnist_functional_api.cc below "
                "--model_zoo; or a TorchScript file net.pt.")
               .Value("NAME"));
  set->Add("model_params", &f->model_params,
           Info(kModel, "Arguments of the model function: k=v;k=v.")
               .Value("PARAMS")
               .Check(CheckModelParams));
  set->Add("feed", &f->feed,
           Info(kModel, "Function that turns records into batches.")
               .Value("NAME")
               .Old({"dataset_fn", "input_fn"}));
  set->Add("loss", &f->loss,
           Info(kModel,
                "Loss function in the model file; for TorchScript a built-in "
                "name.")
               .Value("NAME"));
  set->Add("optimizer", &f->optimizer,
           Info(kModel,
                "Optimizer function in the model file; for TorchScript e.g. "
                "SGD(lr=0.1,momentum=0.9).")
               .Value("NAME"));
  set->Add("eval_metrics_fn", &f->eval_metrics_fn,
           Info(kModel, "Function that gives the metrics.").Value("NAME"));
  set->Add("callbacks", &f->callbacks,
           Info(kModel, "Function that gives the callbacks.").Value("NAME"));
  set->Add("custom_data_reader", &f->custom_data_reader,
           Info(kModel, "Function that makes the data reader.").Value("NAME"));
  if (HasPrediction(command)) {
    set->Add("prediction_outputs_processor", &f->prediction_outputs_processor,
             Info(kModel, "Class that takes the predictions.").Value("NAME"));
  }
}

void AddData(JobCommand command, JobFlags* f, FlagSet* set) {
  const char* kPath = "Folder of RecordIO files, .csv file, or IDX folder";
  if (HasTraining(command)) {
    set->Add("training_data", &f->training_data,
             Info(kData, std::string(kPath) + " to train on.")
                 .Value("PATH")
                 .Old({"training_data_dir", "train_data_dir"}));
  }
  if (command != JobCommand::kPredict) {
    set->Add("validation_data", &f->validation_data,
             Info(kData, std::string(kPath) + " to evaluate on.")
                 .Value("PATH")
                 .Required(command == JobCommand::kEvaluate)
                 .Old({"evaluation_data", "evaluation_data_dir"}));
  }
  if (HasPrediction(command)) {
    set->Add("prediction_data", &f->prediction_data,
             Info(kData, std::string(kPath) + " to predict.")
                 .Value("PATH")
                 .Required(command == JobCommand::kPredict)
                 .Old({"prediction_data_dir"}));
  }
  set->Add("data_reader_params", &f->data_reader_params,
           Info(kData,
                "Arguments of the data reader: k=v;k=v, e.g. "
                "reader_type=CSV;sep=tab.")
               .Value("PARAMS")
               .Check(CheckReaderParams));
  set->Add("minibatch_size", &f->minibatch_size,
           Info(kData, "Records in one step of one worker.")
               .Min(1)
               .Max(kMaxRecordsPerStep));
  set->Add("num_minibatches_per_task", &f->num_minibatches_per_task,
           Info(kData, "Minibatches in one task.").Min(1).Max(kMaxInt));
  set->Add(
      "shuffle", &f->shuffle,
      Info(kData, "Read the training data in an order drawn from --seed."));
  set->Add("seed", &f->seed,
           Info(kData,
                "Seed of the data's order and of the model's initial "
                "values.")
               .Min(0));
}

void AddTraining(JobFlags* f, FlagSet* set) {
  set->Add("num_epochs", &f->num_epochs,
           Info(kTraining,
                "Passes over the training data; 0 or less = without "
                "end.")
               .Max(kMaxInt)
               .Old({"num_epoch"}));
  set->Add("max_step", &f->max_step,
           Info(kTraining, "Stop after this many steps; 0 = no limit.").Min(0));
  set->Add("log_loss_steps", &f->log_loss_steps,
           Info(kTraining, "Report the loss every N steps.").Min(0));
  set->Add("global_batch_size", &f->global_batch_size,
           Info(kTraining,
                "Records in one step of all workers together, whatever their "
                "number; 0 = workers x minibatch_size.")
               .Min(0)
               .Max(kMaxRecordsPerStep));
  set->Add("accumulation_steps", &f->accumulation_steps,
           Info(kTraining,
                "Minibatches of each worker in one step, one after the other.")
               .Min(1)
               .Max(1024));
}

void AddDistribution(JobCommand command, JobFlags* f, FlagSet* set) {
  set->Add("distribution_strategy", &f->distribution_strategy,
           Info(kTraining,
                "Default: AllreduceStrategy, or ParameterServerStrategy when "
                "--num_ps_pods is more than 0.")
               .Value("NAME")
               .Choices({"", "Local", "ParameterServerStrategy",
                         "AllreduceStrategy"}));
  set->Add("collective", &f->collective,
           Info(kTraining,
                "How workers exchange gradients; auto: by NCCL between GPUs, "
                "else by shared memory and sockets; mpi: they are started with "
                "mpirun.")
               .Value("NAME")
               .Choices({"auto", "shm", "tcp", "gloo", "mpi", "nccl"}));
  set->Add("grad_compression", &f->grad_compression,
           Info(kTraining, "Type of gradients on the wire.")
               .Value("NAME")
               .Choices({"none", "bf16", "fp16"}));
  set->Add(
      "output", &f->output,
      Info(kTraining, "Where the trained model is exported to.").Value("PATH"));
  Info predictions(kData,
                   "Where predictions go; a model's own processor is given "
                   "it. Default: the job's folder.");
  if (!HasPrediction(command)) predictions.Hidden();
  set->Add("prediction_output_dir", &f->prediction_output_dir,
           predictions.Value("DIR"));
}

void AddEvaluation(JobFlags* f, FlagSet* set) {
  set->Add("evaluation_steps", &f->evaluation_steps,
           Info(kEvaluation,
                "Evaluate every N steps, besides the end; 0 = at the end only.")
               .Min(0));
  set->Add("evaluation_start_delay_secs", &f->evaluation_start_delay_secs,
           Info(kEvaluation,
                "First evaluation by time not before this many seconds.")
               .Min(0));
  set->Add("evaluation_throttle_secs", &f->evaluation_throttle_secs,
           Info(kEvaluation,
                "Evaluate by time, with this many seconds between; 0 = off.")
               .Min(0));
}

void AddCheckpoint(JobCommand command, JobFlags* f, FlagSet* set) {
  set->Add("checkpoint_steps", &f->checkpoint_steps,
           Info(kCheckpoint,
                "Save every N steps; 0: only at the end and when the job is "
                "stopped, if there is a --checkpoint_dir.")
               .Min(0));
  set->Add("checkpoint_dir", &f->checkpoint_dir,
           Info(kCheckpoint, "Where checkpoints are saved.").Value("DIR"));
  set->Add(
      "keep_checkpoint_max", &f->keep_checkpoint_max,
      Info(kCheckpoint, "Keep the newest N; 0 = all.").Min(0).Max(kMaxInt));
  set->Add("checkpoint_dir_for_init", &f->checkpoint_dir_for_init,
           Info(kCheckpoint,
                "Start from this checkpoint: one version-N folder, or a folder "
                "of them for the newest complete one.")
               .Value("DIR")
               .Required(command == JobCommand::kEvaluate ||
                         command == JobCommand::kPredict)
               .Old({"checkpoint_filename_for_init", "init_from_checkpoint"}));
}

void AddOutput(JobFlags* f, FlagSet* set) {
  set->Add("log_level", &f->log_level,
           Info(kOutput, "Lowest level that is logged.")
               .Value("LEVEL")
               .Choices({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}));
  set->Add("log_format", &f->log_format,
           Info(kOutput,
                "Log lines for people, or a JSON object per line with time, "
                "level, job, pod, generation, step and message.")
               .Value("FORMAT")
               .Choices({"text", "json"}));
  set->Add("log_file_path", &f->log_file_path,
           Info(kOutput, "Copy the pods' output to this file.").Value("FILE"));
  set->Add("event_log", &f->event_log,
           Info(kOutput, "Write what happens, one JSON object per line.")
               .Value("FILE"));
  set->Add("ledger_audit", &f->ledger_audit,
           Info(kOutput,
                "Write every committed range of records, one JSON object per "
                "line.")
               .Value("FILE"));
  set->Add("tensorboard_log_dir", &f->tensorboard_log_dir,
           Info(kOutput, "Write TensorBoard event files here.").Value("DIR"));
  set->Add("tensorboard_histograms", &f->tensorboard_histograms,
           Info(kOutput,
                "Every so many steps, also histograms of weights and gradients "
                "(0: none).")
               .Value("STEPS")
               .Min(0));
  set->Add("model_summary", &f->model_summary,
           Info(kOutput,
                "Print the layers and parameters of the model when the first "
                "worker has built it."));
  set->Add("timeline", &f->timeline,
           Info(kOutput,
                "Write a timeline of all workers for Perfetto, "
                "chrome://tracing and elasticdl timeline.")
               .Value("FILE"));
  set->Add("progress", &f->display,
           Info(kOutput,
                "Progress: a live line on a terminal and plain lines elsewhere "
                "(auto), JSON objects for programs, or nothing.")
               .Value("HOW")
               .Choices({"auto", "live", "plain", "json", "none"})
               .Old({"display"}));
  set->Add("detach", &f->detach,
           Info(kOutput, "Return when the job has started."));
  set->Add("state_dir", &f->state_dir,
           Info(kOutput,
                "Where local jobs keep their state. Default: "
                "$XDG_STATE_HOME/elasticdl or ~/.local/state/elasticdl.")
               .Value("DIR"));
  set->Add("token_file", &f->token_file,
           Info(kOutput,
                "File with the job's secret token (or env ELASTICDL_TOKEN).")
               .Value("FILE"));
  set->Add("failpoints", &f->failpoints,
           Info(kOutput,
                "For tests: make something go wrong, e.g. "
                "checkpoint.rename=kill@2.")
               .Value("SPEC")
               .Check(CheckFailpoints));
}

}  // namespace

absl::Status CheckReaderParams(const std::string& text) {
  return ParseKeyValues(text).status();
}

void AddJobFlags(JobCommand command, JobFlags* flags, FlagSet* set) {
  const bool is_client = command == JobCommand::kTrain ||
                         command == JobCommand::kEvaluate ||
                         command == JobCommand::kPredict;
  if (command == JobCommand::kPs) {
    // What the old PS program had. Not its keep_checkpoint_max of 3: 0 keeps
    // all, as everywhere else.
    flags->port = 2222;
    flags->num_ps_pods = 1;
    flags->num_workers = 1;
  }
  if (!is_client) AddProgramFlags(command, flags, set);
  AddModel(command, flags, set);
  AddData(command, flags, set);
  if (HasTraining(command)) AddTraining(flags, set);
  AddDistribution(command, flags, set);
  if (HasTraining(command)) AddEvaluation(flags, set);
  AddCheckpoint(command, flags, set);
  AddWorkerFlags(flags, set);
  if (is_client) AddSlurmFlags(flags, set);
  if (HasTraining(command)) AddJobServiceFlags(flags, set);
  AddOutput(flags, set);
  AddPsFlags(command, flags, set);
  AddClusterFlags(flags, set);
  AddLegacyFlags(HasTraining(command), flags, set);
}

}  // namespace elasticdl::flags
