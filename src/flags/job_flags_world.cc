// Rules between job flags: the strategy, workers, servers and devices.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/slurm.h"
#include "job_flags_rules.h"

namespace elasticdl::flags {
namespace {

// All who train do it together; evaluation and prediction have no such limit.
absl::Status CheckWorldSize(const JobFlags& f) {
  if (!absl::StartsWith(f.JobType(), "training_") || f.RunsJobCommand()) {
    return absl::OkStatus();
  }
  for (const auto& [flag, value] : {std::pair("--num_workers", f.num_workers),
                                    {"--max_workers", f.max_workers}}) {
    if (value > kMaxWorldSize) {
      return BadFlag(flag, "=", value, ": at most ", kMaxWorldSize,
                     " workers can train together");
    }
  }
  return absl::OkStatus();
}

std::string HowToGetServers(const JobFlags& f) {
  return f.num_ps_pods > 0
             ? absl::StrCat("--distribution_strategy=", kPsStrategy)
             : "--num_ps_pods=N";
}

// Servers keep rows in as many buckets (elasticdl/ps/bucket.h), each with its
// share of the rows.
constexpr int64_t kBuckets = 1024;

void HintMaxRows(const JobFlags& f, FlagSet* set) {
  // With so few rows in a bucket, rounding and single pushes matter.
  if (f.embedding_max_rows == 0 || f.embedding_max_rows >= 8 * kBuckets) return;
  const int64_t share = (f.embedding_max_rows + kBuckets - 1) / kBuckets;
  set->AddHint(absl::StrCat("--embedding_max_rows=", f.embedding_max_rows,
                            " is a small number: each of ", kBuckets,
                            " buckets keeps up to ", share, ", which makes ",
                            share * kBuckets,
                            " rows, and more after a push with many ids"));
}

}  // namespace

// One worker for each task or GPU, unless a number was given.
absl::Status FitToAllocation(const SlurmAllocation& allocation, JobFlags* f,
                             FlagSet* set) {
  const int64_t room = allocation.Workers(f->num_ps_pods);
  const int64_t wanted =
      allocation.gpus > 0 ? allocation.gpus : allocation.tasks - f->num_ps_pods;
  if (room < wanted && f->Strategy() != kLocal) {
    set->AddHint(
        absl::StrCat("Slurm job ", allocation.job_id, " has CPUs for ",
                     Count(room, "worker"), ", but ",
                     allocation.gpus > 0 ? Count(allocation.gpus, "GPU")
                                         : Count(allocation.tasks, "task"),
                     ": a step takes ", Count(allocation.StepCpus(), "CPU"),
                     allocation.cpus_per_core > 1 ? " (whole cores)" : "",
                     "; ask for --cpus-per-task=", allocation.StepCpus(),
                     " and a task for each worker"));
  }
  if (!set->IsSet("num_workers")) {
    if (f->Strategy() == kLocal) return absl::OkStatus();
    return set->Set("num_workers", absl::StrCat(room));
  }
  if (f->num_workers > room) {
    set->AddHint(absl::StrCat("--num_workers=", f->num_workers, ": Slurm job ",
                              allocation.job_id, " has room for ", room,
                              "; the others wait"));
  }
  return absl::OkStatus();
}

// Nobody but mpirun can put workers into one MPI universe.
absl::Status CheckCollective(JobCommand command, const JobFlags& f) {
  const bool starts_workers =
      IsClient(command) ||
      (command == JobCommand::kMaster && f.pod_backend != "none");
  if (f.collective == "nccl" && f.device == "cpu") {
    return BadFlag(
        "--collective=nccl is for GPUs; with --device=cpu use "
        "--collective=auto");
  }
  if (f.collective != "mpi" || !starts_workers) return absl::OkStatus();
  return BadFlag(
      "--collective=mpi: workers are started with mpirun, after "
      "elasticdl-master (docs/mpi.md)");
}

// One worker per GPU of this host, unless the user says otherwise. The jobs of
// Slurm have the GPUs of their allocation.
absl::Status FitToGpus(JobCommand command, JobFlags* f, FlagSet* set) {
  if (!IsClient(command) || f->OnCluster() || set->IsSet("slurm") ||
      FindSlurmAllocation().has_value()) {
    return absl::OkStatus();
  }
  // With "auto", workers compute on the CPU where they cannot use GPUs.
  if (f->device == "auto") return FitToGpuCount(UsableGpuCount(), f, set);
  if (f->device == "cuda") return FitToGpuCount(LocalGpuCount(), f, set);
  return absl::StartsWith(f->device, "cuda:") ? FitToGpuCount(1, f, set)
                                              : absl::OkStatus();
}

absl::Status FitToGpuCount(int64_t gpus, JobFlags* f, FlagSet* set) {
  if (gpus == 0 || f->gpu_sharing || f->HasServers() ||
      f->Strategy() == kLocal || f->RunsJobCommand()) {
    return absl::OkStatus();
  }
  if (!set->IsSet("num_workers")) {
    const int64_t most = f->max_workers > 0 ? f->max_workers : gpus;
    return set->Set("num_workers", absl::StrCat(std::max(
                                       f->min_workers, std::min(gpus, most))));
  }
  if (f->num_workers > gpus) {
    const bool named = absl::StartsWith(f->device, "cuda:");
    return BadFlag("--num_workers=", f->num_workers, ": ",
                   named ? absl::StrCat("--device=", f->device, " is one GPU")
                         : absl::StrCat("this host has ", Count(gpus, "GPU")),
                   "; use fewer workers, --gpu_sharing, or --device=cpu");
  }
  return absl::OkStatus();
}

// Whoever asks for GPUs does not want workers on the CPU.
absl::Status ChooseDevice(JobFlags* f, FlagSet* set) {
  const bool pods = f->OnCluster() || f->pod_backend == "kubernetes";
  if (!pods || set->IsSet("device") || f->HasServers() || f->RunsJobCommand()) {
    return absl::OkStatus();
  }
  for (const std::string* text :
       {&f->worker_resource_request, &f->worker_resource_limit}) {
    ELASTICDL_ASSIGN_OR_RETURN(const Resources resources,
                               ParseResources(*text));
    for (const auto& [name, quantity] : resources) {
      const bool gpu =
          absl::EndsWith(name, "/gpu") || absl::StartsWith(name, "nvidia.com/");
      if (gpu && QuantityValue(quantity) > 0) return set->Set("device", "cuda");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDeviceFlags(const JobFlags& f) {
  if (f.HasServers() && f.device != "auto" && f.device != "cpu") {
    return BadFlag("--device=", f.device,
                   " does not work with parameter servers yet; use "
                   "--device=cpu");
  }
  if (f.precision == "fp16" && (f.device == "cpu" || f.HasServers())) {
    return BadFlag("--precision=fp16 is for GPUs; on the CPU",
                   f.HasServers() ? ", where jobs with parameter servers "
                                    "compute,"
                                  : "",
                   " use --precision=bf16 or fp32");
  }
  return absl::OkStatus();
}

absl::Status CheckWorkers(JobFlags* f, FlagSet* set) {
  if (f->Strategy() == kLocal && f->num_workers != 1) {
    if (set->IsSet("num_workers")) {
      return BadFlag("--num_workers=", f->num_workers,
                     ": the Local strategy has one worker");
    }
    ELASTICDL_RETURN_IF_ERROR(set->Set("num_workers", "1"));
  }
  if (f->max_workers != 0 && f->max_workers < f->num_workers) {
    return BadFlag("--max_workers=", f->max_workers,
                   " is less than --num_workers=", f->num_workers);
  }
  if (f->min_workers > f->num_workers) {
    return BadFlag("--min_workers=", f->min_workers,
                   " is more than --num_workers=", f->num_workers);
  }
  ELASTICDL_RETURN_IF_ERROR(CheckWorldSize(*f));
  if (f->global_batch_size % f->minibatch_size != 0) {
    return BadFlag("--global_batch_size=", f->global_batch_size,
                   " is no multiple of --minibatch_size=", f->minibatch_size);
  }
  if (f->accumulation_steps > 1 && f->global_batch_size > 0) {
    return BadFlag("--accumulation_steps=", f->accumulation_steps,
                   ": --global_batch_size says how many minibatches a step "
                   "has; give one of the two");
  }
  if (f->accumulation_steps > 1 && f->HasServers()) {
    return BadFlag("--accumulation_steps=", f->accumulation_steps,
                   " does not work with parameter servers; use a larger "
                   "--minibatch_size");
  }
  if (f->minibatch_size > kMaxRecordsPerStep / f->accumulation_steps) {
    return BadFlag("--minibatch_size=", f->minibatch_size,
                   " times --accumulation_steps=", f->accumulation_steps,
                   " are ", f->minibatch_size * f->accumulation_steps,
                   " records in a step of one worker; at most ",
                   kMaxRecordsPerStep, " can be counted");
  }
  return CheckDeviceFlags(*f);
}

absl::Status CheckBackup(const JobFlags& f) {
  if (f.ps_backup == 0) return absl::OkStatus();
  if (f.Strategy() != kPsStrategy) {
    return BadFlag("--ps_backup=1 needs parameter servers: ",
                   HowToGetServers(f));
  }
  if (f.num_ps_pods < 2) {
    return BadFlag(
        "--ps_backup=1 needs --num_ps_pods=2 or more: a server's backup "
        "is another server");
  }
  return absl::OkStatus();
}

absl::Status AdjustStrategy(JobFlags* f, FlagSet* set) {
  if (f->distribution_strategy == kPsStrategy && f->num_ps_pods == 0) {
    set->AddHint("--num_ps_pods is 0: training with AllreduceStrategy");
    ELASTICDL_RETURN_IF_ERROR(set->Set("distribution_strategy", kAllreduce));
  }
  if (f->Strategy() != kPsStrategy) {
    if (f->num_ps_pods > 0) {
      set->AddHint(
          absl::StrCat("--num_ps_pods has no effect under ", f->Strategy()));
    }
    if (f->use_async) {
      set->AddHint(absl::StrCat("--use_async has no effect under ",
                                f->Strategy(), "; ", HowToGetServers(*f),
                                " makes it a job with parameter servers"));
    }
    return absl::OkStatus();
  }
  HintMaxRows(*f, set);
  if (!f->use_async && f->get_model_steps != 1) {
    set->AddHint("--get_model_steps is 1 in synchronous training");
    ELASTICDL_RETURN_IF_ERROR(set->Set("get_model_steps", "1"));
  }
  if (f->use_async && f->grads_to_wait != 1) {
    set->AddHint("--grads_to_wait is 1 in asynchronous training");
    ELASTICDL_RETURN_IF_ERROR(set->Set("grads_to_wait", "1"));
  }
  if (f->lr_staleness_modulation && !f->use_async) {
    set->AddHint("--lr_staleness_modulation has no effect without --use_async");
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::flags
