// `elasticdl ckpt`: show and compare checkpoints. In the program
// elasticdl-ckpt.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// Runs `elasticdl ckpt ARGS…`. The exit code: 0, 1 for checkpoints that differ,
// 2 for trouble or wrong usage.
int RunCkptCommands(const std::vector<std::string>& args);

// Each takes the arguments after its name and returns the exit code.
int RunCkptInfo(const std::vector<std::string>& args);
int RunCkptDiff(const std::vector<std::string>& args);

// Prints "elasticdl ckpt: why" to stderr and gives the exit code 2.
int CkptFailed(const absl::Status& status);

}  // namespace elasticdl::cli
