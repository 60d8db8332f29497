// Runs a program and waits for it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::data::internal {

// Runs `command` (found through PATH) in `folder`, its output going to
// folder/command.log. FAILED_PRECONDITION when the program is not installed;
// UNAVAILABLE with the end of its output when it fails.
absl::Status RunCommand(const std::vector<std::string>& command,
                        const std::string& folder);

}  // namespace elasticdl::data::internal
