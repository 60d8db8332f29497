// What the grammars of flag values share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace elasticdl::flags {

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

absl::string_view Trim(absl::string_view text);
std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& names);
// Splits `key=value` at the first '='; both trimmed, the key not empty.
absl::StatusOr<std::pair<std::string, std::string>> SplitPair(
    absl::string_view text);
bool IsName(absl::string_view text);
bool AllDigits(absl::string_view text);

}  // namespace elasticdl::flags
