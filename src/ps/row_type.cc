#include "row_type.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/hash.h"

namespace elasticdl::ps {
namespace {

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kFloatInfinity = 0x7f800000;

uint32_t ToBits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float ToFloat(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// What is added before the low `drop` bits are cut off: half a unit, a little
// less for even numbers; or anything below a unit.
struct Nearest {
  uint32_t operator()(uint32_t bits, int drop) const {
    return ((bits >> drop) & 1) + (1u << (drop - 1)) - 1;
  }
};
struct Randomly {
  uint32_t random;
  uint32_t operator()(uint32_t, int drop) const {
    return random & ((1u << drop) - 1);
  }
};

// The upper half of a float.
struct Bfloat16 {
  static float Load(uint16_t bits) { return ToFloat(uint32_t{bits} << 16); }
  template <typename Round>
  static uint16_t Store(float value, const Round& round) {
    constexpr uint32_t kLargest = 0x7f7f;
    const uint32_t bits = ToBits(value);
    const uint32_t magnitude = bits & ~kSign;
    // Infinities and NaN, which gradients cannot bring about alone.
    if (magnitude >= kFloatInfinity) {
      return static_cast<uint16_t>((bits >> 16) |
                                   (magnitude > kFloatInfinity ? 0x40 : 0));
    }
    uint32_t rounded = (magnitude + round(magnitude, 16)) >> 16;
    if (rounded > kLargest) rounded = kLargest;
    return static_cast<uint16_t>(((bits & kSign) >> 16) | rounded);
  }
};

// IEEE half: 5 bits of exponent, 10 of mantissa.
struct Float16 {
  static float Load(uint16_t half) {
    const uint32_t sign = uint32_t{half} << 16 & kSign;
    const uint32_t exponent = half >> 10 & 0x1f;
    const uint32_t mantissa = half & 0x3ff;
    if (exponent == 0x1f) {
      return ToFloat(sign | kFloatInfinity | mantissa << 13);
    }
    if (exponent == 0) {
      // Steps of 2^-24.
      const float value = static_cast<float>(mantissa) * 0x1p-24f;
      return sign == 0 ? value : -value;
    }
    return ToFloat(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  template <typename Round>
  static uint16_t Store(float value, const Round& round) {
    constexpr uint32_t kLargest = 0x7bff;
    const uint32_t bits = ToBits(value);
    const uint32_t magnitude = bits & ~kSign;
    const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
    if (magnitude >= kFloatInfinity) {
      return static_cast<uint16_t>(
          sign | (magnitude > kFloatInfinity ? 0x7e00 : 0x7c00));
    }
    const auto exponent = static_cast<int>(magnitude >> 23) - 112;
    uint32_t rounded = 0;
    if (exponent > 0) {
      const uint32_t rebased = magnitude - (112u << 23);
      rounded = (rebased + round(rebased, 13)) >> 13;
    } else if (exponent > -18) {
      // Small ones have no leading one of their own.
      const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
      const int drop = 14 - exponent;
      rounded = (mantissa + round(mantissa, drop)) >> drop;
    }
    if (rounded > kLargest) rounded = kLargest;
    return static_cast<uint16_t>(sign | rounded);
  }
};

template <typename Type>
void Load(const char* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    to[i] = Type::Load(bits);
  }
}

// `rounding(i)`: of the value at i.
template <typename Type, typename Rounding>
void Store(const float* from, char* to, size_t count,
           const Rounding& rounding) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = Type::Store(from[i], rounding(i));
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

template <typename Rounding>
void StoreWith(RowType type, const float* from, char* to, size_t count,
               const Rounding& rounding) {
  switch (type) {
    case RowType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      break;
    case RowType::kBfloat16:
      Store<Bfloat16>(from, to, count, rounding);
      break;
    case RowType::kFloat16:
      Store<Float16>(from, to, count, rounding);
      break;
  }
}

}  // namespace

absl::StatusOr<RowType> ParseRowType(absl::string_view name) {
  if (name.empty() || name == "float32") return RowType::kFloat32;
  if (name == "bfloat16") return RowType::kBfloat16;
  if (name == "float16") return RowType::kFloat16;
  return absl::InvalidArgumentError(absl::StrCat("rows of type '", name, "'"));
}

void LoadValues(RowType type, const char* from, float* to, size_t count) {
  switch (type) {
    case RowType::kFloat32:
      std::memcpy(to, from, count * sizeof(float));
      break;
    case RowType::kBfloat16:
      Load<Bfloat16>(from, to, count);
      break;
    case RowType::kFloat16:
      Load<Float16>(from, to, count);
      break;
  }
}

void StoreNearest(RowType type, const float* from, char* to, size_t count) {
  StoreWith(type, from, to, count, [](size_t) { return Nearest(); });
}

void StoreRandomly(RowType type, uint64_t seed, const float* from, char* to,
                   size_t count) {
  StoreWith(type, from, to, count, [seed](size_t i) {
    return Randomly{static_cast<uint32_t>(MixHash(seed + i))};
  });
}

}  // namespace elasticdl::ps
