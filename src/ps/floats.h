// Numbers in the payload of an entry or a request, which lies at a multiple of
// 8 in memory (wire.h, push_log.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace elasticdl::ps {

inline const int64_t* Ids(absl::string_view payload, size_t at) {
  return reinterpret_cast<const int64_t*>(payload.data() + at);
}
inline const float* Floats(absl::string_view payload, size_t at) {
  return reinterpret_cast<const float*>(payload.data() + at);
}

inline bool AllFinite(const float* values, size_t count) {
  // Infinities and NaNs have all bits of the exponent set. Whole numbers, so
  // that the compiler may vectorise the sum.
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof(bits));
    bad |= (bits & kExponent) == kExponent ? 1u : 0u;
  }
  return bad == 0;
}

}  // namespace elasticdl::ps
