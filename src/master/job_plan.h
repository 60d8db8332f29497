// From a master's options to what its controller starts with: shards of the
// data, the checkpoint to start from. Reads files.
#pragma once

#include "absl/status/statusor.h"
#include "elasticdl/master.h"
#include "job_controller.h"

namespace elasticdl::master {

// NOT_FOUND, INVALID_ARGUMENT … name the flag and the path.
absl::StatusOr<JobController::Options> PlanJob(const MasterOptions& options);

// The checkpoints in the directory `dir`; empty: there are none.
CheckpointStore CheckpointStoreIn(const std::string& dir);

}  // namespace elasticdl::master
