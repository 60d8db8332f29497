// elasticdl timeline: summarizes a job's --timeline file.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunTimeline(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
