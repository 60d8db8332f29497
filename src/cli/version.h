// elasticdl version.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunVersion(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
