#include "checkpoint_lines.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

// As often as the display writes a line into a pipe.
constexpr absl::Duration kInterval = absl::Seconds(10);

// 20.9ms, not 20.923874ms.
std::string ThreeDigits(absl::Duration duration) {
  absl::Duration unit = absl::Nanoseconds(1);
  while (duration >= 1000 * unit && unit < absl::Seconds(1)) unit *= 10;
  return absl::FormatDuration(absl::Trunc(duration, unit));
}

}  // namespace

std::string CheckpointLines::Saved(absl::Time now, const std::string& path,
                                   absl::Duration duration) {
  ++count_;
  newest_ = absl::StrCat("saved ", path, " in ", ThreeDigits(duration));
  if (now < next_) return "";
  next_ = now + kInterval;
  return Rest();
}

std::string CheckpointLines::Rest() {
  const int64_t count = std::exchange(count_, 0);
  if (count == 0) return "";
  if (count == 1) return newest_;
  return absl::StrCat(newest_, ", and ", count - 1,
                      count == 2 ? " version" : " versions", " before it");
}

}  // namespace elasticdl::master
