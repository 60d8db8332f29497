// `elasticdl ckpt`: show and compare checkpoints. In the program
// elasticdl-ckpt.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// Runs `elasticdl ckpt ARGS…` and returns the exit code: 0, 1 if checkpoints
// differ, 2 after an error or wrong usage.
int RunCkptCommands(const std::vector<std::string>& args);

// Each takes the arguments after its name and returns the exit code.
int RunCkptInfo(const std::vector<std::string>& args);
int RunCkptDiff(const std::vector<std::string>& args);

// Prints "elasticdl ckpt: <error>" to stderr and returns the exit code 2.
int CkptFailed(const absl::Status& status);

}  // namespace elasticdl::cli
