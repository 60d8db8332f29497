// Time as a dependency. State machines take `now` as an argument; the thin
// shells around them own a Clock.
#pragma once

#include "absl/time/time.h"

namespace elasticdl {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic time, for durations and deadlines. Its epoch is arbitrary.
  virtual absl::Time Now() const = 0;
  // Wall-clock time, for people and file names.
  virtual absl::Time WallNow() const = 0;

  // The machine's clock. Never destroyed.
  static const Clock& Real();
};

}  // namespace elasticdl
