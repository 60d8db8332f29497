// elasticdl completion: shell completion from the tables of commands and flags.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunCompletion(const std::vector<std::string>& args);

// The script for bash.
std::string BashCompletion();

}  // namespace elasticdl::cli
