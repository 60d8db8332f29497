// Parts of AddJobFlags that live in files of their own.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::flags {

// Counts that travel as 32-bit numbers.
constexpr double kMaxInt = std::numeric_limits<int32_t>::max();

inline bool IsWorker(JobCommand command) {
  return command == JobCommand::kWorker;
}
inline bool IsMaster(JobCommand command) {
  return command == JobCommand::kMaster;
}
inline bool HasTraining(JobCommand command) {
  return command != JobCommand::kEvaluate && command != JobCommand::kPredict;
}
inline bool HasPrediction(JobCommand command) {
  return command == JobCommand::kPredict || IsMaster(command) ||
         IsWorker(command);
}

// NAME=VALUE;...
absl::Status CheckReaderParams(const std::string& text);

void AddWorkerFlags(JobFlags* f, FlagSet* set);
void AddSlurmFlags(JobFlags* f, FlagSet* set);
void AddJobServiceFlags(JobFlags* f, FlagSet* set);
void AddPsFlags(JobCommand command, JobFlags* f, FlagSet* set);
void AddProgramFlags(JobCommand command, JobFlags* f, FlagSet* set);

// Flags that act on a Kubernetes cluster.
void AddClusterFlags(JobFlags* flags, FlagSet* set);

// Old flags that are not mere renames of present ones: those that
// TranslateLegacyFlags translates and those that have no effect any more.
// `has_training`: the flags of train are there to be translated to.
void AddLegacyFlags(bool has_training, JobFlags* flags, FlagSet* set);

}  // namespace elasticdl::flags
