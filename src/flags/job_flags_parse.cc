// From arguments to the flags of a job, and back; what is derived from them.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/slurm.h"
#include "job_flags_rules.h"

namespace elasticdl::flags {
namespace {

constexpr char kPackedFlag[] = "--packed_flags=";

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

std::string DefaultJobName(const std::string& model_def, absl::Time now) {
  // Hundredths of a second, because a script may start several in a second.
  const std::string time =
      absl::FormatTime("%m%d-%H%M%E2S", now, absl::LocalTimeZone());
  return DefaultJobName(model_def, absl::StrReplaceAll(time, {{".", "-"}}));
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
  // Another of our programs has checked them.
  if (args.size() == 1 && absl::StartsWith(args[0], kPackedFlag)) {
    return Annotate(
        set->Unpack(std::string(absl::StripPrefix(args[0], kPackedFlag))),
        "--packed_flags");
  }
  absl::Status status = set->Parse(args);
  if (status.ok()) status = TranslateLegacyFlags(flags, set);
  // With --slurm the job is only submitted: it gets another allocation.
  std::optional<SlurmAllocation> allocation;
  if (status.ok() && IsClient(command) && !flags->OnCluster() &&
      !set->IsSet("slurm")) {
    allocation = FindSlurmAllocation();
    if (allocation.has_value()) AskSlurm(*allocation);
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
