// Why a local process failed, from its log.
#pragma once

#include <string>

namespace elasticdl::master {

// The last error line of a pod's log, or its last line, without time and level
// and in at most 300 characters. Empty if there is none.
std::string LastErrorIn(const std::string& log_file);

}  // namespace elasticdl::master
