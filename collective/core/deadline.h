// A deadline on the monotonic clock, for waits in the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "absl/time/time.h"

namespace elasticdl::collective {

// The time starts with the first wait that needs it, because reading the clock
// takes as long as a small operation. Thread-compatible.
class Deadline {
 public:
  explicit Deadline(absl::Duration timeout) : timeout_(timeout) {}

  static int64_t Now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
  }
  // On the monotonic clock.
  int64_t nanos() {
    // Ten years stand for infinity and do not overflow.
    constexpr int64_t kForever = int64_t{10} * 365 * 24 * 3600 * 1000000000;
    if (nanos_ == 0) {
      const int64_t wait = absl::ToInt64Nanoseconds(timeout_);
      nanos_ = Now() + std::clamp<int64_t>(wait, 0, kForever);
    }
    return nanos_;
  }
  absl::Duration Left() {
    return absl::Nanoseconds(std::max<int64_t>(0, nanos() - Now()));
  }
  timespec ToTimespec() {
    timespec time;
    time.tv_sec = nanos() / 1000000000;
    time.tv_nsec = nanos() % 1000000000;
    return time;
  }

 private:
  absl::Duration timeout_;
  int64_t nanos_ = 0;
};

}  // namespace elasticdl::collective
