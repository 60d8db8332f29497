// How fast the job trains.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace elasticdl::master {

// Records per second over the last seconds, or since the step before the last
// if that is longer ago. Thread-compatible.
class RateMeter {
 public:
  explicit RateMeter(absl::Duration window = absl::Seconds(5))
      : window_(window) {}
  void Add(absl::Time now, int64_t records);
  double PerSecond(absl::Time now);

 private:
  const absl::Duration window_;
  std::deque<std::pair<absl::Time, int64_t>> samples_;
  int64_t sum_ = 0;
};

}  // namespace elasticdl::master
