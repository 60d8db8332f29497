// What a server does before its memory limit is reached.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace elasticdl::ps {

// From 90 % of the limit on: tables that evict do not grow any more, and pushes
// that make the model larger are slowed down.
bool IsNearlyFull(size_t bytes, size_t limit);

// For how long pushes are to wait after the model grew from `before` to `after`
// bytes. The longer, the larger a share of what was left it took: the last
// tenth of the memory then lasts for minutes, in which somebody may add servers
// (elasticdl scale). A push that adds no rows costs nothing.
absl::Duration SlowDownFor(size_t before, size_t after, size_t limit);

// No single push waits longer, so that clients need no more patience.
inline constexpr absl::Duration kMostSlowDown = absl::Seconds(1);

}  // namespace elasticdl::ps
