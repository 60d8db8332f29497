// Declaration of the job flags: one function per group of the help.
#include "elasticdl/flags/job_flags.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

// Counts that travel as 32-bit numbers.
constexpr double kMaxInt = std::numeric_limits<int32_t>::max();

constexpr char kModel[] = "Model";
constexpr char kData[] = "Data";
constexpr char kTraining[] = "Training";
constexpr char kPs[] = "Parameter server";
constexpr char kEvaluation[] = "Evaluation";
constexpr char kCheckpoint[] = "Checkpoints";
constexpr char kWorkers[] = "Job and workers";
constexpr char kOutput[] = "Output and logs";
constexpr char kProgram[] = "This program";

bool IsWorker(JobCommand command) { return command == JobCommand::kWorker; }
bool IsMaster(JobCommand command) { return command == JobCommand::kMaster; }
bool HasTraining(JobCommand command) {
  return command != JobCommand::kEvaluate && command != JobCommand::kPredict;
}
bool HasPrediction(JobCommand command) {
  return command == JobCommand::kPredict || IsMaster(command) ||
         IsWorker(command);
}

absl::Status CheckModelParams(const std::string& text) {
  return ParseKeyValues(text, true).status();
}
absl::Status CheckReaderParams(const std::string& text) {
  return ParseKeyValues(text).status();
}
// They become one line of a script.
absl::Status CheckSbatchOptions(const std::string& text) {
  if (text.empty() || (text[0] == '-' && text.find('\n') == text.npos)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "must be options of sbatch on one line, each beginning with '-'");
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
                "reader_type=CSV;label_col=y.")
               .Value("PARAMS")
               .Check(CheckReaderParams));
  set->Add("minibatch_size", &f->minibatch_size,
           Info(kData, "Records in one step of one worker.")
               .Min(1)
               .Max(kMaxRecordsPerStep));
  set->Add("num_minibatches_per_task", &f->num_minibatches_per_task,
           Info(kData, "Minibatches handed to a worker at a time.")
               .Min(1)
               .Max(kMaxInt));
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
           Info(kTraining, "Passes over the training data; 0 = without end.")
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

void AddEmbeddings(JobFlags* f, FlagSet* set) {
  set->Add(
      "embedding_max_rows", &f->embedding_max_rows,
      Info(kPs,
           "About how many rows a table may have; others are evicted. 0 = any "
           "number.")
          .Min(0));
  set->Add(
      "embedding_eviction", &f->embedding_eviction,
      Info(kPs,
           "Which rows are evicted first: those not pushed for the longest "
           "time, or those with the fewest pushes.")
          .Value("NAME")
          .Choices({"age", "frequency"}));
  set->Add("embedding_min_count", &f->embedding_min_count,
           Info(kPs, "An id gets a row with its Nth push.").Min(1).Max(255));
  set->Add("embedding_layer_limit", &f->embedding_layer_limit,
           Info(kPs,
                "Embedding layers of torch above this size live on servers. "
                "0 = none does.")
               .Value("SIZE")
               .Grammar(ParseMemorySize));
  set->Add("embedding_dtype", &f->embedding_dtype,
           Info(kPs, "Type of the rows' values on servers.")
               .Value("NAME")
               .Choices({"float32", "bfloat16", "float16"}));
}

void AddPs(JobCommand command, JobFlags* f, FlagSet* set) {
  set->Add("num_ps_pods", &f->num_ps_pods,
           Info(kPs, "Number of parameter servers.")
               .Min(0)
               .Max(kMaxParameterServers)
               .Old({"num_ps"}));
  set->Add("get_model_steps", &f->get_model_steps,
           Info(kPs, "A worker pulls the model every N steps (async only).")
               .Min(1)
               .Max(kMaxInt)
               .Old({"get_model_frequency"}));
  if (!HasTraining(command)) return;
  set->Add("use_async", &f->use_async,
           Info(kPs, "Apply each worker's gradients as they come."));
  set->Add("grads_to_wait", &f->grads_to_wait,
           Info(kPs, "Gradients that make one synchronous update.")
               .Min(1)
               .Max(kMaxInt));
  set->Add("sync_version_tolerance", &f->sync_version_tolerance,
           Info(kPs, "How many versions old a synchronous gradient may be.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("lr_staleness_modulation", &f->lr_staleness_modulation,
           Info(kPs, "Divide the learning rate by a gradient's age (async)."));
  set->Add("ps_overlap", &f->ps_overlap,
           Info(kPs,
                "Pull and push while the model computes (async): a minibatch "
                "does not see the worker's own last update."));
  if (IsWorker(command)) return;
  if (command != JobCommand::kPs) AddEmbeddings(f, set);
  set->Add("ps_log", &f->ps_log,
           Info(kPs,
                "Folder for the logs from which a restarted server goes on. "
                "Default: the job's; on a cluster, its pod's.")
               .Value("DIR"));
  set->Add("ps_memory_limit", &f->ps_memory_limit,
           Info(kPs,
                "Memory of one server for its part of the model, such as 2Gi; "
                "beyond it, the job fails. 0 = no limit. Default: no limit; on "
                "a cluster, 60 % of the server's memory.")
               .Value("SIZE")
               .Grammar(ParseMemorySize));
  set->Add("ps_audit", &f->ps_audit,
           Info(kPs,
                "Server i writes the pushes that it has applied to FILE.i, one "
                "JSON object per line; with --ps_backup=1, its copy of part j "
                "to FILE.j-on-i.")
               .Value("FILE"));
  // A server hears it from its master.
  if (command == JobCommand::kPs) return;
  set->Add("ps_backup", &f->ps_backup,
           Info(kPs,
                "Keep a warm copy of each server's part of the model on the "
                "next server, which takes over when the first is lost; 0 or 1. "
                "Needs two servers or more.")
               .Min(0)
               .Max(1));
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

absl::Status CheckDevice(const std::string& text) {
  absl::string_view index = text;
  uint32_t number = 0;
  if (text == "auto" || text == "cpu" || text == "cuda" ||
      (absl::ConsumePrefix(&index, "cuda:") &&
       absl::SimpleAtoi(index, &number))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("it is none of auto, cpu, cuda, cuda:N");
}

void AddDevice(JobFlags* f, FlagSet* set) {
  set->Add("device", &f->device,
           Info(kWorkers,
                "Where workers compute: auto (a GPU if there is one), cpu, "
                "cuda (a GPU that no other worker has) or cuda:N.")
               .Value("NAME")
               .Check(CheckDevice));
  set->Add("gpu_sharing", &f->gpu_sharing,
           Info(kWorkers, "More workers than GPUs: let them share."));
  set->Add("precision", &f->precision,
           Info(kWorkers,
                "Type in which layers compute where that is safe; weights "
                "are always fp32.")
               .Value("NAME")
               .Choices({"fp32", "bf16"}));
}

void AddWorkers(JobFlags* f, FlagSet* set) {
  AddDevice(f, set);
  set->Add("job_name", &f->job_name,
           Info(kWorkers,
                "Unique name, the beginning of the pods' names. Required on a "
                "cluster; default on this machine: model and time.")
               .Value("NAME"));
  set->Add("num_workers", &f->num_workers,
           Info(kWorkers, "Number of workers.")
               .Min(1)
               .Max(kMaxInt)
               .Old({"num_worker"}));
  set->Add("min_workers", &f->min_workers,
           Info(kWorkers, "Minimum number of workers to train with.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("max_workers", &f->max_workers,
           Info(kWorkers, "Maximum number of workers; 0 = 1024.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("num_threads", &f->num_threads,
           Info(kWorkers, "Threads per worker; 0 = cores / workers.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("worker_timeout", &f->worker_timeout,
           Info(kWorkers, "Replace a worker that is silent for this long.")
               .Value("SECS")
               .Min(0.1));
  set->Add("step_timeout", &f->step_timeout,
           Info(kWorkers, "Replace one whose model code hangs this long.")
               .Value("SECS")
               .Min(0.1));
  set->Add("load_timeout", &f->load_timeout,
           Info(kWorkers, "Replace one that loads nothing for this long.")
               .Value("SECS")
               .Min(0.1));
  set->Add("background_join_mb", &f->background_join_mb,
           Info(kWorkers,
                "From this size on (parameters, optimizer state, buffers), a "
                "joining worker is given the model while the others train; a "
                "smaller one in a short pause; 0 = always in a pause.")
               .Value("MB")
               .Min(0));
  set->Add("join_bandwidth_mb", &f->join_bandwidth_mb,
           Info(kWorkers,
                "Give a joining worker at most so much of the model per "
                "second; 0 = as much as slows steps by a fifth at most.")
               .Value("MB")
               .Min(0));
  set->Add("worker_start_timeout", &f->worker_start_timeout,
           Info(kWorkers, "Replace one that has not attached by then.")
               .Value("SECS")
               .Min(0.1));
  set->Add("master_timeout", &f->master_timeout,
           Info(kWorkers,
                "How long workers wait for a restarted master. Above 0, the "
                "master keeps a journal and continues where it stopped. Local "
                "jobs: 0; on a cluster: 300.")
               .Value("SECS")
               .Min(0));
  set->Add(
      "task_max_failures", &f->task_max_failures,
      Info(kWorkers, "Quarantine a task after it crashed this many workers.")
          .Min(1)
          .Max(kMaxInt));
  set->Add(
      "task_timeout_secs", &f->task_timeout_secs,
      Info(kWorkers, "Give a task to another worker after this; 0 = automatic.")
          .Value("SECS")
          .Min(0));
  set->Add("aux_params", &f->aux_params,
           Info(kWorkers, "disable_relaunch=true: never relaunch a worker.")
               .Value("PARAMS")
               .Grammar(ParseAuxParams));
}

void AddSlurm(JobFlags* f, FlagSet* set) {
  set->Add("slurm", &f->slurm,
           Info(kWorkers,
                "Submit the job to Slurm with sbatch and these options of it, "
                "e.g. --slurm='--partition=gpu --time=2:00:00'. Inside an "
                "allocation the job runs there without this flag.")
               .Value("OPTIONS")
               .Optional()
               .Check(CheckSbatchOptions));
}

void AddJobService(JobFlags* f, FlagSet* set) {
  set->Add("relaunch_on_worker_failure", &f->relaunch_on_worker_failure,
           Info(kWorkers, "Relaunches of a worker that failed by itself.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("relaunch_timeout_worker", &f->relaunch_timeout_worker,
           Info(kWorkers,
                "Relaunch workers whose tasks take too long; on this machine "
                "that is done unless this is =false."));
  // Of the original; here the master always does all of it.
  set->Add("task_fault_tolerance", &f->task_fault_tolerance,
           Info(kWorkers, "").Hidden());
  set->Add("need_task_manager", &f->need_task_manager,
           Info(kWorkers, "").Hidden());
  set->Add("need_pod_manager", &f->need_pod_manager,
           Info(kWorkers, "").Hidden());
  set->Add("need_elasticdl_job_service", &f->need_elasticdl_job_service,
           Info(kWorkers,
                "Use the built-in training loop even with --job_command."));
  set->Add("job_command", &f->job_command,
           Info(kWorkers,
                "Shell command to run in every worker instead of the built-in "
                "training loop.")
               .Value("COMMAND"));
  // Accepted; there is no TensorFlow to configure yet.
  set->Add("need_tf_config", &f->need_tf_config, Info(kWorkers, "").Hidden());
}

void AddOutput(JobFlags* f, FlagSet* set) {
  set->Add("log_level", &f->log_level,
           Info(kOutput, "The least level that is logged.")
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
  set->Add("timeline", &f->timeline,
           Info(kOutput,
                "Write what each worker does when, for Perfetto, "
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

void AddProgram(JobCommand command, JobFlags* f, FlagSet* set) {
  if (IsMaster(command) || command == JobCommand::kPs) {
    set->Add("port", &f->port,
             Info(kProgram, "Port to listen on; 0 = any free one.")
                 .Min(0)
                 .Max(65535));
  }
  if (IsMaster(command)) {
    set->Add("pod_backend", &f->pod_backend,
             Info(kProgram,
                  "Who starts the workers; none: they are started by hand.")
                 .Value("NAME")
                 .Choices({"local", "kubernetes", "slurm", "none"}));
    set->Add("http_port", &f->http_port,
             Info(kProgram, "Port of the status page; 0 = any free one.")
                 .Hidden()
                 .Min(0)
                 .Max(65535));
    set->Add("pod_template_dir", &f->pod_template_dir,
             Info(kProgram,
                  "Folder with worker-pod.json and ps-pod.json, the pods that "
                  "--pod_backend=kubernetes makes.")
                 .Hidden()
                 .Value("DIR"));
    return;
  }
  set->Add("master_addr", &f->master_addr,
           Info(kProgram, "The master's address (or env MASTER_ADDR).")
               .Value("HOST:PORT")
               .Grammar(ParseAddress));
  if (IsWorker(command)) {
    set->Add("worker_id", &f->worker_id,
             Info(kProgram,
                  "This worker's number (or env WORKER_ID); -1 = the master "
                  "chooses.")
                 .Min(-1)
                 .Max(kMaxInt));
    set->Add("worker_address", &f->worker_address,
             Info(kProgram,
                  "Where workers on other hosts reach this one (or env "
                  "ELASTICDL_WORKER_ADDRESS).")
                 .Value("HOST"));
    set->Add("ps_addrs", &f->ps_addrs,
             Info(kProgram, "The parameter servers, in order of their ids.")
                 .Value("A,B,...")
                 .Grammar(ParseAddresses));
    set->Add("job_type", &f->job_type,
             Info(kProgram, "Default: what the master says.")
                 .Value("TYPE")
                 .Choices({"", "training_only", "evaluation_only",
                           "prediction_only", "training_with_evaluation"}));
    set->Add("compile_only", &f->compile_only,
             Info(kProgram, "Compile the model into the cache and end."));
  } else {
    set->Add("ps_id", &f->ps_id,
             Info(kProgram, "This server's number, from 0.")
                 .Min(0)
                 .Max(kMaxParameterServers - 1));
    set->Add("worker_address", &f->worker_address,
             Info(kProgram,
                  "Where workers reach this server (or env "
                  "ELASTICDL_WORKER_ADDRESS).")
                 .Value("HOST"));
    set->Add(
        "opt_type", &f->opt_type,
        Info(kProgram, "Optimizer: SGD, Adam, Adagrad, ...").Value("NAME"));
    set->Add("opt_args", &f->opt_args,
             Info(kProgram, "learning_rate=0.1;momentum=0.9;nesterov=false;")
                 .Value("PARAMS")
                 .Check(CheckReaderParams));
  }
}

}  // namespace

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
  if (!is_client) AddProgram(command, flags, set);
  AddModel(command, flags, set);
  AddData(command, flags, set);
  if (HasTraining(command)) AddTraining(flags, set);
  AddDistribution(command, flags, set);
  if (HasTraining(command)) AddEvaluation(flags, set);
  AddCheckpoint(command, flags, set);
  AddWorkers(flags, set);
  if (is_client) AddSlurm(flags, set);
  if (HasTraining(command)) AddJobService(flags, set);
  AddOutput(flags, set);
  AddPs(command, flags, set);
  AddClusterFlags(flags, set);
  AddLegacyFlags(HasTraining(command), flags, set);
}

}  // namespace elasticdl::flags
