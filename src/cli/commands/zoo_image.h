// elasticdl zoo build and push, in the program that has an HTTP library.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

// `elasticdl zoo build|push ARGS…`, checked by `elasticdl` already. The exit
// code: 0, 1 failed, 2 wrong usage.
int RunZooBuild(const std::vector<std::string>& args);
int RunZooPush(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
