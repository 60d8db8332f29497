// Rules between job flags: a job's data, name, resources and checkpoints.
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/job_flags.h"
#include "job_flags_rules.h"

namespace elasticdl::flags {
namespace {

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

absl::Status CheckHistograms(const JobFlags& f) {
  if (f.tensorboard_histograms == 0) return absl::OkStatus();
  if (f.tensorboard_log_dir.empty()) {
    return BadFlag(
        "--tensorboard_histograms needs --tensorboard_log_dir, where they go");
  }
  if (f.training_data.empty()) {
    return BadFlag("--tensorboard_histograms: only training has them");
  }
  if (f.HasServers()) {
    return BadFlag(
        "--tensorboard_histograms: with parameter servers no worker has the "
        "whole model; --distribution_strategy=AllreduceStrategy or Local has "
        "histograms");
  }
  return absl::OkStatus();
}

}  // namespace

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

absl::Status ValidateJobFlags(JobCommand command, JobFlags* flags,
                              FlagSet* set) {
  ELASTICDL_RETURN_IF_ERROR(CheckData(command, *flags));
  ELASTICDL_RETURN_IF_ERROR(CheckJob(command, *flags));
  // The master that starts servers and workers has checked the rest.
  if (command == JobCommand::kPs) return absl::OkStatus();
  // First, because most of what follows depends on the strategy.
  ELASTICDL_RETURN_IF_ERROR(AdjustStrategy(flags, set));
  if (command == JobCommand::kWorker) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(CheckBackup(*flags));
  ELASTICDL_RETURN_IF_ERROR(ChooseDevice(flags, set));
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
  ELASTICDL_RETURN_IF_ERROR(CheckHistograms(*flags));
  HintEvaluation(*flags, set);
  return AdjustCheckpoint(flags, set);
}

namespace {

// A comma may be a part of a value, so that it is only a hint.
void HintSeparator(const JobFlags& flags, const KeyValues& params,
                   FlagSet* set) {
  // Whoever quotes a value means it.
  if (flags.model_params.find_first_of("'\"") != std::string::npos) return;
  for (const auto& [key, value] : params) {
    const auto split =
        ParseKeyValues(absl::StrCat(key, "=", value), /*allow_commas=*/true);
    if (!split.ok() || split->size() < 2) continue;
    set->AddHint(absl::StrCat(
        "--model_params: ", key, " is '", value,
        "', because pairs are separated by ';'; did you mean '",
        absl::StrJoin(*split, ";", absl::PairFormatter("=")), "'?"));
  }
}

}  // namespace

void HintModelParams(const JobFlags& flags, FlagSet* set) {
  const std::string file = flags.ModelFile();
  const auto params = ParseKeyValues(flags.model_params);
  if (flags.model_params.empty() || !params.ok()) return;
  HintSeparator(flags, *params, set);
  if (!FileExists(file)) return;
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

}  // namespace elasticdl::flags
