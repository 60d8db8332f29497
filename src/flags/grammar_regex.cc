// Regular expressions in flags; alone because of its compiler option.
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/flags/grammar.h"

namespace elasticdl::flags {

absl::Status CheckRegex(const std::string& text) {
  try {
    std::regex compiled(text);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a regular expression: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::flags
