// Flags that say how many workers there are, where they run and when they are
// replaced.
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr char kWorkers[] = "Job and workers";

// They become one line of a script.
absl::Status CheckSbatchOptions(const std::string& text) {
  if (text.empty() || (text[0] == '-' && text.find('\n') == text.npos)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "must be options of sbatch on one line, each beginning with '-'");
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
                "are always fp32. fp16 (GPUs only) scales the loss.")
               .Value("NAME")
               .Choices({"fp32", "bf16", "fp16"}));
  set->Add("memory_format", &f->memory_format,
           Info(kWorkers,
                "Order of images (batches with 4 dimensions) in memory; "
                "convolutions on GPUs are often faster with channels_last.")
               .Value("NAME")
               .Choices({"contiguous", "channels_last"}));
}

}  // namespace

void AddWorkerFlags(JobFlags* f, FlagSet* set) {
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
           Info(kWorkers, "Maximum number of workers; 0 = 65536.")
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
                "Send a joining worker at most this many MB per second; "
                "0 = as much as slows steps by at most a fifth.")
               .Value("MB")
               .Min(0));
  set->Add("keep_state", &f->keep_state,
           Info(kWorkers,
                "Local jobs on the CPU: keep parameters, optimizer state and "
                "buffers in memory that outlives the workers. If all of them "
                "are killed, training continues from the very same step."));
  set->Add("worker_start_timeout", &f->worker_start_timeout,
           Info(kWorkers, "Replace one that has not attached by then.")
               .Value("SECS")
               .Min(0.1));
  set->Add("master_timeout", &f->master_timeout,
           Info(kWorkers,
                "How long workers wait for a restarted master. Above 0, the "
                "master keeps a journal and continues where it stopped. On a "
                "cluster, and local jobs that are not detached: 300.")
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

void AddSlurmFlags(JobFlags* f, FlagSet* set) {
  set->Add("slurm", &f->slurm,
           Info(kWorkers,
                "Submit the job to Slurm with sbatch and these options of it, "
                "e.g. --slurm='--partition=gpu --time=2:00:00'. Inside an "
                "allocation the job runs there without this flag.")
               .Value("OPTIONS")
               .Optional()
               .Check(CheckSbatchOptions));
}

void AddJobServiceFlags(JobFlags* f, FlagSet* set) {
  set->Add("relaunch_on_worker_failure", &f->relaunch_on_worker_failure,
           Info(kWorkers, "Relaunches of a worker that failed by itself.")
               .Min(0)
               .Max(kMaxInt));
  set->Add("relaunch_timeout_worker", &f->relaunch_timeout_worker,
           Info(kWorkers,
                "=false: do not relaunch workers whose tasks take too long. "
                "Otherwise they are, whether this is given or not."));
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

}  // namespace elasticdl::flags
