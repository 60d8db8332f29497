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

// The same for a plan whose jobs share a machine or a cluster.
absl::StatusOr<experiment::RunResult> RunShared(const experiment::Plan& plan,
                                                const experiment::Run& run,
                                                const RunFolders& folders,
                                                ExperimentSignals& signals);

// Ending in an orderly way takes a job a second or two; then it is killed.
constexpr double kStopSeconds = 60;

// Of something that does not change the result of a run.
void TellError(const absl::Status& status);

// What all results have in common.
experiment::RunResult NewResult(const experiment::Run& run);

}  // namespace elasticdl::cli
