// Rules between job flags, and what is derived from several of them.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/flags/slurm.h"

namespace elasticdl::flags {
namespace {

constexpr char kPackedFlag[] = "--packed_flags=";

constexpr char kLocal[] = "Local";
constexpr char kPsStrategy[] = "ParameterServerStrategy";
constexpr char kAllreduce[] = "AllreduceStrategy";
// The longest pod name is elasticdl-<job>-master and must fit 63 characters.
constexpr size_t kMaxJobName = 63 - 17;

template <typename... Args>
absl::Status BadFlag(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

bool IsClient(JobCommand command) {
  return command == JobCommand::kTrain || command == JobCommand::kEvaluate ||
         command == JobCommand::kPredict;
}

// A local job's name is a folder and part of process titles.
absl::Status CheckLocalJobName(const std::string& name) {
  bool good = name.size() <= 100;
  for (char c : name) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                    c == '-' || c == '_' || c == '.');
  }
  if (good && !absl::StartsWith(name, ".") && !absl::StartsWith(name, "-")) {
    return absl::OkStatus();
  }
  return BadFlag(
      "--job_name: '", name,
      "' may hold letters, digits, '-', '_' and '.' only, at most 100, "
      "with a letter or digit first");
}

// One worker for each task or GPU, unless a number was given.
absl::Status FitToAllocation(const SlurmAllocation& allocation, JobFlags* f,
                             FlagSet* set) {
  const int64_t room = allocation.Workers(f->num_ps_pods);
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

absl::Status CheckSlurm(const JobFlags& f, const FlagSet& set) {
  if (!set.IsSet("slurm")) return absl::OkStatus();
  if (f.OnCluster()) {
    return BadFlag("--slurm and --image contradict each other: a job runs on ",
                   "Slurm or on Kubernetes");
  }
  if (f.detach) {
    return BadFlag(
        "--detach has no meaning with --slurm: Slurm runs the job in the "
        "background");
  }
  return absl::OkStatus();
}

absl::Status CheckJob(JobCommand command, const JobFlags& f) {
  if (!f.OnCluster()) {
    if (!f.yaml.empty()) {
      return BadFlag(
          "--yaml needs --image: only a job on a cluster has pods "
          "to write down");
    }
    return CheckLocalJobName(f.job_name);
  }
  if (f.job_name.empty()) {
    return BadFlag(
        "missing required flag --job_name (a job on a cluster needs a "
        "name that is unique in its namespace)");
  }
  return Annotate(CheckKubeName(f.job_name, kMaxJobName, false), "--job_name");
}

absl::Status CheckData(JobCommand command, const JobFlags& f) {
  if (!f.prediction_data.empty() &&
      (!f.training_data.empty() || !f.validation_data.empty())) {
    return BadFlag(
        "--prediction_data goes with neither --training_data nor "
        "--validation_data");
  }
  if (!f.prediction_data.empty() && f.checkpoint_dir_for_init.empty() &&
      command != JobCommand::kWorker) {
    return BadFlag(
        "--prediction_data needs --checkpoint_dir_for_init, the model "
        "to predict with");
  }
  const bool starts_job = IsClient(command) || command == JobCommand::kMaster;
  if (!starts_job || f.RunsJobCommand()) return absl::OkStatus();
  if (f.model_def.empty()) return BadFlag("missing required flag --model_def");
  if (command == JobCommand::kTrain && f.training_data.empty()) {
    return BadFlag("missing required flag --training_data");
  }
  if (command == JobCommand::kMaster && f.training_data.empty() &&
      f.validation_data.empty() && f.prediction_data.empty()) {
    return BadFlag(
        "missing required flag --training_data (or --validation_data, "
        "--prediction_data)");
  }
  if (f.training_data.empty() && !f.validation_data.empty() &&
      f.checkpoint_dir_for_init.empty()) {
    return BadFlag(
        "--validation_data without --training_data needs "
        "--checkpoint_dir_for_init, the model to evaluate");
  }
  return absl::OkStatus();
}

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

// With --device=cuda: one worker per GPU of this host, unless the user says
// otherwise. With "auto" libtorch may be one without CUDA, and the jobs of
// Slurm have the GPUs of their allocation.
absl::Status FitToGpus(JobCommand command, JobFlags* f, FlagSet* set) {
  if (!IsClient(command) || f->OnCluster() || f->device != "cuda" ||
      f->gpu_sharing || f->HasServers() || f->Strategy() == kLocal ||
      f->RunsJobCommand() || set->IsSet("slurm") ||
      FindSlurmAllocation().has_value()) {
    return absl::OkStatus();
  }
  const int64_t gpus = LocalGpuCount();
  if (gpus == 0) return absl::OkStatus();
  if (!set->IsSet("num_workers")) {
    const int64_t most = f->max_workers > 0 ? f->max_workers : gpus;
    return set->Set("num_workers", absl::StrCat(std::max(
                                       f->min_workers, std::min(gpus, most))));
  }
  if (f->num_workers > gpus) {
    return BadFlag("--num_workers=", f->num_workers, ": this host has ", gpus,
                   gpus == 1 ? " GPU" : " GPUs",
                   "; use fewer workers, or --gpu_sharing");
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
  if (f->HasServers() && f->device != "auto" && f->device != "cpu") {
    return BadFlag("--device=", f->device,
                   " does not work with parameter servers yet; use "
                   "--device=cpu");
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

// A server would refuse such pods, those of workers only when the master makes
// them. What was not given is made to fit.
absl::Status CheckResources(const JobFlags& f, const FlagSet& set) {
  const struct {
    const char* type;
    const std::string& request;
    const std::string& limit;
  } kPods[] = {{"master", f.master_resource_request, f.master_resource_limit},
               {"worker", f.worker_resource_request, f.worker_resource_limit},
               {"ps", f.ps_resource_request, f.ps_resource_limit}};
  for (const auto& pod : kPods) {
    const std::string request_flag =
        absl::StrCat(pod.type, "_resource_request");
    if (!set.IsSet(request_flag)) continue;
    ELASTICDL_ASSIGN_OR_RETURN(const Resources request,
                               ParseResources(pod.request));
    ELASTICDL_ASSIGN_OR_RETURN(const Resources limit,
                               ParseResources(pod.limit));
    for (const auto& [name, quantity] : limit) {
      const auto asked = request.find(name);
      if (asked == request.end() ||
          QuantityValue(asked->second) <= QuantityValue(quantity)) {
        continue;
      }
      return BadFlag("--", request_flag, ": ", name, "=", asked->second,
                     " is more than the ", quantity, " of --", pod.type,
                     "_resource_limit");
    }
  }
  return absl::OkStatus();
}

absl::Status AdjustCheckpoint(JobFlags* f, FlagSet* set) {
  if (f->checkpoint_steps > 0 && f->checkpoint_dir.empty()) {
    set->AddHint("no --checkpoint_dir: checkpoints go to ./checkpoint_dir");
    return set->Set("checkpoint_dir", "checkpoint_dir");
  }
  return absl::OkStatus();
}

// The original's default is off. A job that hangs for ever helps nobody, so
// only an explicit =false switches it off here (a bare flag means true).
absl::Status AdjustTimeout(const JobFlags& f, FlagSet* set) {
  if (!set->IsSet("relaunch_timeout_worker")) {
    return set->Set("relaunch_timeout_worker", "true");
  }
  if (!f.relaunch_timeout_worker && f.task_timeout_secs > 0) {
    return BadFlag("--task_timeout_secs=", f.task_timeout_secs,
                   " contradicts --relaunch_timeout_worker=false");
  }
  return absl::OkStatus();
}

void HintEvaluation(const JobFlags& f, FlagSet* set) {
  if (!f.validation_data.empty()) return;
  if (f.evaluation_steps > 0) {
    set->AddHint("--evaluation_steps has no effect without --validation_data");
  }
  if (f.evaluation_throttle_secs > 0) {
    set->AddHint(
        "--evaluation_throttle_secs has no effect without --validation_data");
  }
}

}  // namespace

bool JobFlags::OnCluster() const {
  return !image.empty() || !docker_image_prefix.empty();
}

std::string JobFlags::Strategy() const {
  if (!distribution_strategy.empty()) return distribution_strategy;
  return num_ps_pods > 0 ? kPsStrategy : kAllreduce;
}

std::string JobFlags::JobType() const {
  if (!job_type.empty()) return job_type;
  if (!prediction_data.empty()) return "prediction_only";
  if (training_data.empty() && !validation_data.empty()) {
    return "evaluation_only";
  }
  // Validation data is always used, if only at the end.
  return validation_data.empty() ? "training_only" : "training_with_evaluation";
}

bool JobFlags::RunsJobCommand() const {
  return !job_command.empty() && !need_elasticdl_job_service;
}

bool JobFlags::HasServers() const {
  return absl::StartsWith(JobType(), "training_") && !RunsJobCommand() &&
         Strategy() == kPsStrategy;
}

std::string JobFlags::ModelFile() const {
  const size_t dot = model_def.rfind('.');
  if (dot == std::string::npos || absl::EndsWith(model_def, ".pt")) return "";
  const std::string name =
      absl::StrReplaceAll(model_def.substr(0, dot), {{".", "/"}});
  return JoinPath(model_zoo, absl::StrCat(name, ".cc"));
}

absl::Status ValidateJobFlags(JobCommand command, JobFlags* flags,
                              FlagSet* set) {
  ELASTICDL_RETURN_IF_ERROR(CheckData(command, *flags));
  ELASTICDL_RETURN_IF_ERROR(CheckJob(command, *flags));
  if (command == JobCommand::kPs) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(AdjustStrategy(flags, set));
  if (command == JobCommand::kWorker) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(CheckBackup(*flags));
  ELASTICDL_RETURN_IF_ERROR(FitToGpus(command, flags, set));
  ELASTICDL_RETURN_IF_ERROR(CheckWorkers(flags, set));
  ELASTICDL_RETURN_IF_ERROR(CheckCollective(command, *flags));
  if (IsClient(command)) ELASTICDL_RETURN_IF_ERROR(CheckSlurm(*flags, *set));
  if (flags->OnCluster()) {
    ELASTICDL_RETURN_IF_ERROR(CheckResources(*flags, *set));
  }
  if (command == JobCommand::kTrain || command == JobCommand::kMaster) {
    ELASTICDL_RETURN_IF_ERROR(AdjustTimeout(*flags, set));
  }
  HintEvaluation(*flags, set);
  return AdjustCheckpoint(flags, set);
}

void HintModelParams(const JobFlags& flags, FlagSet* set) {
  const std::string file = flags.ModelFile();
  const auto params = ParseKeyValues(flags.model_params, true);
  if (flags.model_params.empty() || !params.ok() || !FileExists(file)) return;
  const std::string folder = std::filesystem::path(file).parent_path();
  std::string text;
  const auto names = ListDirectory(folder.empty() ? "." : folder);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (!absl::EndsWith(name, ".cc") && !absl::EndsWith(name, ".h")) continue;
    absl::StrAppend(&text, ReadFile(JoinPath(folder, name)).value_or(""));
  }
  for (const auto& [key, value] : *params) {
    if (absl::StrContains(text, absl::StrCat("\"", key, "\""))) continue;
    set->AddHint(absl::StrCat("--model_params: ", file, " does not mention '",
                              key, "', so it has no effect; is it misspelt?"));
  }
}

std::string DefaultJobName(const std::string& model_def, absl::Time now) {
  return DefaultJobName(
      model_def, absl::FormatTime("%m%d-%H%M%S", now, absl::LocalTimeZone()));
}

std::string DefaultJobName(const std::string& model_def,
                           const std::string& suffix) {
  std::string model = model_def;
  if (absl::EndsWith(model, ".pt")) model.resize(model.size() - 3);
  // a.b.fn → b; path/net → net.
  if (const size_t slash = model.rfind('/'); slash != std::string::npos) {
    model = model.substr(slash + 1);
  } else if (const size_t dot = model.rfind('.'); dot != std::string::npos) {
    model.resize(dot);
    if (const size_t before = model.rfind('.'); before != std::string::npos) {
      model = model.substr(before + 1);
    }
  }
  std::string name;
  for (char c : absl::AsciiStrToLower(model)) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (plain) name += c;
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min(name.size(), kMaxJobName - suffix.size() - 1));
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty()) name = "job";
  return absl::StrCat(name, "-", suffix);
}

std::string PackedArgument(const FlagSet& set) {
  return absl::StrCat(kPackedFlag, set.Pack());
}

absl::StatusOr<std::string> PackedMasterArgument(const FlagSet& set,
                                                 const KeyValues& more) {
  JobFlags flags;
  FlagSet master("elasticdl-master", "");
  AddJobFlags(JobCommand::kMaster, &flags, &master);
  ELASTICDL_RETURN_IF_ERROR(master.Unpack(set.Pack()));
  for (const auto& [name, value] : more) {
    ELASTICDL_RETURN_IF_ERROR(master.Set(name, value));
  }
  // The flags of evaluate and predict do not have it.
  ELASTICDL_RETURN_IF_ERROR(AdjustTimeout(flags, &master));
  return PackedArgument(master);
}

absl::Status CheckJobFlags(JobCommand command,
                           const std::vector<std::string>& args,
                           JobFlags* flags, FlagSet* set) {
  AddJobFlags(command, flags, set);
  if (args.size() == 1 && absl::StartsWith(args[0], kPackedFlag)) {
    return Annotate(
        set->Unpack(std::string(absl::StripPrefix(args[0], kPackedFlag))),
        "--packed_flags");
  }
  absl::Status status = set->Parse(args);
  if (status.ok()) status = TranslateLegacyFlags(flags, set);
  std::optional<SlurmAllocation> allocation;
  if (status.ok() && IsClient(command) && !flags->OnCluster() &&
      !set->IsSet("slurm")) {
    allocation = FindSlurmAllocation();
  }
  if (status.ok() && allocation.has_value()) {
    status = FitToAllocation(*allocation, flags, set);
  }
  if (status.ok()) status = ValidateJobFlags(command, flags, set);
  if (status.ok() && IsClient(command) && !flags->OnCluster()) {
    HintModelParams(*flags, set);
  }
  const bool starts_job = IsClient(command) || command == JobCommand::kMaster;
  if (status.ok() && starts_job && flags->job_name.empty()) {
    // A job that Slurm has requeued has the name that it had before.
    status = set->Set(
        "job_name",
        allocation.has_value()
            ? DefaultJobName(flags->model_def, "slurm-" + allocation->job_id)
            : DefaultJobName(flags->model_def, absl::Now()));
  }
  return status;
}

int ParseJobFlags(JobCommand command, const std::vector<std::string>& args,
                  JobFlags* flags, FlagSet* set) {
  return set->Report(CheckJobFlags(command, args, flags, set));
}

}  // namespace elasticdl::flags
