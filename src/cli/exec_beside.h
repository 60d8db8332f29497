// Hands over to a program that is installed next to this one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// Replaces this process by `PROGRAM ARGS…`. Returns only when that fails:
// NOT_FOUND, …; the message contains the program's `purpose` ("which …").
absl::Status ExecBeside(const std::string& program, const std::string& purpose,
                        const std::vector<std::string>& args);

}  // namespace elasticdl::cli
