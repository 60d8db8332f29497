// Executes one run of an experiment: starts its jobs, applies the actions of
// the trace, measures.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/experiment/plan.h"
#include "elasticdl/experiment/results.h"
#include "experiment/end_signals.h"

namespace elasticdl::cli {

struct RunFolders {
  // For the files of the run.
  std::string run;
  // For notes on jobs that may be on a cluster (LiveJobOptions).
  std::string notes;
};

// CANCELLED: a signal asked to end; the run's jobs have been stopped. A run
// that went wrong is a result that is not ok.
absl::StatusOr<experiment::RunResult> RunOne(const experiment::Plan& plan,
                                             const experiment::Run& run,
                                             const RunFolders& folders,
                                             ExperimentSignals& signals);

// The same for a plan whose jobs share a machine.
absl::StatusOr<experiment::RunResult> RunShared(const experiment::Plan& plan,
                                                const experiment::Run& run,
                                                const std::string& folder,
                                                ExperimentSignals& signals);

// What all results have in common.
experiment::RunResult NewResult(const experiment::Run& run);

}  // namespace elasticdl::cli
