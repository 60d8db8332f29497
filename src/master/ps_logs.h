// The logs of a job's parameter servers on this machine: a folder for each run,
// named after it (v1::JobSpec.run).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace elasticdl::master {

// Another name for each run of a job.
std::string NewRun();

// Removes the logs of all other runs: this run cannot start from them, and they
// are large. Only folders named like runs are touched; `dir` need not exist.
absl::Status RemoveOtherPsLogs(const std::string& dir, const std::string& run);

// Of this run, which is over.
absl::Status RemovePsLogs(const std::string& dir, const std::string& run);

}  // namespace elasticdl::master
