// Random numbers that are the same on every machine (the standard library's
// distributions are not).
#pragma once

#include <cmath>
#include <cstdint>

#include "elasticdl/common/hash.h"

namespace elasticdl::data::internal {

// SplitMix64. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(MixHash(seed)) {}

  uint64_t Next() {
    const uint64_t value = MixHash(state_);
    state_ += 0x9e3779b97f4a7c15;
    return value;
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // In [0, n), n > 0.
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>(Uniform() * static_cast<double>(n));
  }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * Uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace elasticdl::data::internal
