// `elasticdl data`: generate, download, convert and inspect data sets.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

// Runs `elasticdl data ARGS…` and returns the exit code: 0, 1 failed, 2 wrong
// usage.
int RunData(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
