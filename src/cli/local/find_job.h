// Which job of this machine a command means.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/jobdir.h"

namespace elasticdl::cli {

// The job called `name`; with an empty name the only one that is running.
// NOT_FOUND: there is none; FAILED_PRECONDITION: there are several. The message
// names the jobs there are and what to type; `command` ("stop") is in it.
absl::StatusOr<jobdir::JobDir> FindJob(const std::string& state_dir,
                                       const std::string& name,
                                       const std::string& command);

}  // namespace elasticdl::cli
