// How both ways to start a process use its Options.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"

namespace elasticdl::process {

// Later entries of one key win.
std::vector<std::string> MergeEnvironment(const std::vector<std::string>& all);

// For standard output and error; above descriptor 2.
absl::StatusOr<Fd> OpenLog(const Options& options);

}  // namespace elasticdl::process
