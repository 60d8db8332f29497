// Exponential backoff with jitter. Pure: the caller does the waiting.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace elasticdl {

// Thread-compatible.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(50);
    absl::Duration max = absl::Seconds(5);
    double factor = 2.0;
    // Each delay is multiplied by a random number in [1 - jitter, 1].
    double jitter = 0.3;
  };
  explicit Backoff(Options options, uint64_t seed)
      : options_(options), next_(options.initial), random_(seed) {}

  // The delay before the next attempt.
  absl::Duration Next();
  // Call after a success.
  void Reset() { next_ = options_.initial; }

 private:
  Options options_;
  absl::Duration next_;
  std::mt19937_64 random_;
};

}  // namespace elasticdl
