#include "activity_line.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

// What takes longer than this is worth a line of its own.
constexpr absl::Duration kLongActivity = absl::Seconds(2);

}  // namespace

std::string ActivityLine::Set(std::string text, absl::Time now) {
  if (text == text_) return "";
  std::string line;
  const absl::Duration took = now - since_;
  // Bytes that are counted are the same activity.
  if (!text_.empty() && took >= kLongActivity &&
      !absl::StrContains(text_, " of ")) {
    line = absl::StrCat(
        text_, " took ",
        absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(100))));
  }
  text_ = std::move(text);
  since_ = now;
  return line;
}

}  // namespace elasticdl::master
