// A moment on the monotonic clock, for waits that the kernel does.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

#include "absl/time/time.h"

namespace elasticdl::collective {

struct Deadline {
  int64_t nanos = 0;

  static int64_t Now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
  }
  static Deadline After(absl::Duration timeout) {
    // Ten years are "for ever" and do not overflow.
    constexpr int64_t kForever = int64_t{10} * 365 * 24 * 3600 * 1000000000;
    const int64_t wait = absl::ToInt64Nanoseconds(timeout);
    return {Now() + (wait > kForever ? kForever : wait < 0 ? 0 : wait)};
  }
  bool Passed() const { return Now() >= nanos; }
  absl::Duration Left() const {
    const int64_t left = nanos - Now();
    return left > 0 ? absl::Nanoseconds(left) : absl::ZeroDuration();
  }
  timespec ToTimespec() const {
    timespec time;
    time.tv_sec = nanos / 1000000000;
    time.tv_nsec = nanos % 1000000000;
    return time;
  }
};

}  // namespace elasticdl::collective
