// Random numbers that are the same on every machine (the standard library's
// distributions are not).
#pragma once

#include <cmath>
#include <cstdint>

#include "elasticdl/common/hash.h"

namespace elasticdl::data::internal {

// Thread-compatible.
class Random {
 public:
  // The seed is mixed: SplitMix64 gives two seeds that differ by its increment
  // the same numbers, shifted by one place.
  explicit Random(uint64_t seed) : bits_(MixHash(seed)) {}

  uint64_t Next() { return bits_.Next(); }
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
  SplitMix64 bits_;
};

}  // namespace elasticdl::data::internal
