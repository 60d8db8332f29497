// Text helpers for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

// "1 worker", "2 workers". For nouns whose plural is made with an s.
inline std::string Count(int64_t number, absl::string_view noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

// At most `most` bytes of a text, and "…" if that is not all of it.
inline std::string CutText(std::string text, size_t most) {
  if (text.size() <= most) return text;
  // Not in the middle of a character of UTF-8.
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  text.resize(most);
  return text + "…";
}

}  // namespace elasticdl
