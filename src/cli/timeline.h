// elasticdl timeline: what a job's --timeline file says.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunTimeline(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
