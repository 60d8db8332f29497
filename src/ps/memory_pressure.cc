#include "memory_pressure.h"

#include <algorithm>

namespace elasticdl::ps {
namespace {

// In which all but 1/e of what is left is used up.
constexpr absl::Duration kStretch = absl::Minutes(1);

}  // namespace

bool IsNearlyFull(size_t bytes, size_t limit) {
  return limit > 0 && bytes > limit - limit / 10;
}

absl::Duration SlowDownFor(size_t before, size_t after, size_t limit) {
  if (after <= before || !IsNearlyFull(after, limit)) {
    return absl::ZeroDuration();
  }
  if (before >= limit) return kMostSlowDown;
  const double share =
      static_cast<double>(after - before) / static_cast<double>(limit - before);
  return std::min(kMostSlowDown, share * kStretch);
}

}  // namespace elasticdl::ps
