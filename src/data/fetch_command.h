// The programs that download and unpack data sets.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::data::internal {

// Runs `command` (found through PATH) in `folder`. FAILED_PRECONDITION when the
// program is not installed; UNAVAILABLE with the end of its output when it
// fails.
absl::Status RunCommand(const std::vector<std::string>& command,
                        const std::string& folder);

}  // namespace elasticdl::data::internal
