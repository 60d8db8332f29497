// elasticdl data.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunData(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
