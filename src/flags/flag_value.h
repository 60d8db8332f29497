// Text to typed flag values and back.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::flags {

using FlagTarget = std::variant<std::string*, int64_t*, double*, bool*>;

// true|yes|t|y|1, false|no|f|n|0 in any case; false when it is neither.
bool ParseBool(absl::string_view text, bool& value);

// Parses `text` into the target, by the rules of `info`. On an error the
// target is unchanged and the message says what is wrong with the value.
absl::Status ParseValue(const std::string& text, const FlagInfo& info,
                        const FlagTarget& target);

// As it would be typed; ParseValue reads the same value back.
std::string FormatValue(const FlagTarget& target);

// string, int, float or bool.
std::string TypeName(const FlagTarget& target);

}  // namespace elasticdl::flags
