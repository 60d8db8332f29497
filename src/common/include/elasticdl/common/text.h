// Text helpers for messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

// "1 worker", "2 workers". For nouns whose plural is made with an s.
inline std::string Count(int64_t number, absl::string_view noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

}  // namespace elasticdl
