// Runs a program and collects what it prints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::model {

struct ProcessResult {
  // Exit code, or 128 + the number of the signal that ended it.
  int code = 0;
  // stdout and stderr as they came.
  std::string output;
};

// arguments[0] is looked up in PATH. Blocks until the program ends. An error
// means that it could not be started.
absl::StatusOr<ProcessResult> RunProcess(
    const std::vector<std::string>& arguments);

}  // namespace elasticdl::model
