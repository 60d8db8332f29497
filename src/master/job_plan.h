// From a master's options to what its controller starts with: shards of the
// data, the checkpoint to start from. Reads files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/master.h"
#include "job_controller.h"

namespace elasticdl::master {

// NOT_FOUND, INVALID_ARGUMENT … name the flag and the path.
absl::StatusOr<JobController::Options> PlanJob(const MasterOptions& options);

// A sentence for the user of a new job that begins at `first_step`: its
// --checkpoint_dir has checkpoints of later steps. Empty: it has none.
std::string CheckpointsInTheWay(const v1::JobSpec& job, int64_t first_step);

// The checkpoints in the directory `dir`; empty: there are none. `start`:
// --checkpoint_dir_for_init.
CheckpointStore CheckpointStoreIn(const std::string& dir,
                                  const std::string& start = "");

}  // namespace elasticdl::master
