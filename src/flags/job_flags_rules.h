// Rules between job flags that live in files of their own. Those that take a
// FlagSet* change flags that do not fit, and say so in hints.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/flags/slurm.h"

namespace elasticdl::flags {

// Of --distribution_strategy.
constexpr char kLocal[] = "Local";
constexpr char kPsStrategy[] = "ParameterServerStrategy";
constexpr char kAllreduce[] = "AllreduceStrategy";
// The longest pod name is elasticdl-<job>-master and must fit 63 characters.
constexpr size_t kMaxJobName = 63 - 17;

template <typename... Args>
absl::Status BadFlag(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

inline bool IsClient(JobCommand command) {
  return command == JobCommand::kTrain || command == JobCommand::kEvaluate ||
         command == JobCommand::kPredict;
}

absl::Status FitToAllocation(const SlurmAllocation& allocation, JobFlags* f,
                             FlagSet* set);
absl::Status CheckCollective(JobCommand command, const JobFlags& f);
absl::Status FitToGpus(JobCommand command, JobFlags* f, FlagSet* set);
// The same when workers can use `gpus` GPUs of this host.
absl::Status FitToGpuCount(int64_t gpus, JobFlags* f, FlagSet* set);
absl::Status ChooseDevice(JobFlags* f, FlagSet* set);
absl::Status CheckWorkers(JobFlags* f, FlagSet* set);
absl::Status CheckBackup(const JobFlags& f);
absl::Status AdjustStrategy(JobFlags* f, FlagSet* set);
absl::Status AdjustTimeout(const JobFlags& f, FlagSet* set);

}  // namespace elasticdl::flags
