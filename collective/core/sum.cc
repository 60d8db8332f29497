// Sums over Highway vectors. This file is compiled once per instruction set
// (foreach_target.h includes it again), hence the odd guards.
#include "core/sum.h"

#include <cstdint>
#include <cstring>

// SSSE3 and AVX3_DL add nothing that sums use; each target costs compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/sum.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace elasticdl::collective::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

struct Float32 {
  using T = float;
  using V = VF;
  static HWY_INLINE V Load(const T* p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE void Store(V v, T* p) { hn::StoreU(v, DF(), p); }
  static constexpr size_t kLanes = hn::MaxLanes(DF());
};

struct Int64 {
  using T = int64_t;
  using D = hn::ScalableTag<int64_t>;
  using V = hn::Vec<D>;
  static HWY_INLINE V Load(const T* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void Store(V v, T* p) { hn::StoreU(v, D(), p); }
  static constexpr size_t kLanes = hn::MaxLanes(D());
};

// The upper half of a float.
struct BFloat16 {
  using T = uint16_t;
  using V = VF;
  using DU = hn::ScalableTag<uint32_t>;
  using DH = hn::Rebind<uint16_t, DU>;
  static HWY_INLINE V Load(const T* p) {
    const auto bits = hn::PromoteTo(DU(), hn::LoadU(DH(), p));
    return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
  }
  static HWY_INLINE void Store(V v, T* p) {
    const DU du;
    const auto bits = hn::BitCast(du, v);
    const auto upper = hn::ShiftRight<16>(bits);
    // To even. A NaN must not become infinite by rounding: its lower half is
    // dropped and the quiet bit set instead.
    const auto odd = hn::And(upper, hn::Set(du, 1));
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto result =
        hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du, 0x0040)), rounded);
    hn::StoreU(hn::TruncateTo(DH(), result), DH(), p);
  }
  static constexpr size_t kLanes = hn::MaxLanes(DF());
};

struct Float16 {
  using T = uint16_t;
  using V = VF;
  using DH = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE V Load(const T* p) {
    return hn::PromoteTo(
        DF(), hn::LoadU(DH(), reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE void Store(V v, T* p) {
    hn::StoreU(hn::DemoteTo(DH(), v), DH(),
               reinterpret_cast<hwy::float16_t*>(p));
  }
  static constexpr size_t kLanes = hn::MaxLanes(DF());
};

template <class Type>
HWY_INLINE const typename Type::T* Input(const void* const* in, int k) {
  return static_cast<const typename Type::T*>(in[k]);
}

// The last elements, fewer than a vector, are copied to a padded one.
template <class Type>
HWY_NOINLINE void SumTail(const void* const* in, int n, typename Type::T* out,
                          typename Type::T* copy, size_t start, size_t count) {
  using T = typename Type::T;
  const size_t bytes = (count - start) * sizeof(T);
  T block[Type::kLanes] = {};
  std::memcpy(block, Input<Type>(in, 0) + start, bytes);
  typename Type::V sum = Type::Load(block);
  for (int k = 1; k < n; ++k) {
    std::memcpy(block, Input<Type>(in, k) + start, bytes);
    sum = hn::Add(sum, Type::Load(block));
  }
  Type::Store(sum, block);
  std::memcpy(out + start, block, bytes);
  if (copy != nullptr) std::memcpy(copy + start, block, bytes);
}

// kInputs is a constant, so that the pointers stay in registers.
template <class Type, int kInputs, bool kCopy>
HWY_INLINE size_t SumVectors(const void* const* in, typename Type::T* out,
                             typename Type::T* copy, size_t count) {
  const typename Type::T* input[kInputs];
  for (int k = 0; k < kInputs; ++k) input[k] = Input<Type>(in, k);
  constexpr size_t kLanes = Type::kLanes;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    typename Type::V sum = Type::Load(input[0] + i);
    for (int k = 1; k < kInputs; ++k) {
      sum = hn::Add(sum, Type::Load(input[k] + i));
    }
    Type::Store(sum, out + i);
    if (kCopy) Type::Store(sum, copy + i);
  }
  return i;
}

// Any number of inputs.
template <class Type>
HWY_INLINE size_t SumMany(const void* const* in, int n, typename Type::T* out,
                          typename Type::T* copy, size_t count) {
  constexpr size_t kLanes = Type::kLanes;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    typename Type::V sum = Type::Load(Input<Type>(in, 0) + i);
    for (int k = 1; k < n; ++k) {
      sum = hn::Add(sum, Type::Load(Input<Type>(in, k) + i));
    }
    Type::Store(sum, out + i);
    if (copy != nullptr) Type::Store(sum, copy + i);
  }
  return i;
}

template <class Type, int kInputs>
HWY_INLINE size_t SumFew(const void* const* in, typename Type::T* out,
                         typename Type::T* copy, size_t count) {
  return copy == nullptr
             ? SumVectors<Type, kInputs, false>(in, out, copy, count)
             : SumVectors<Type, kInputs, true>(in, out, copy, count);
}

template <class Type>
HWY_NOINLINE void SumAll(const void* const* in, int n, void* out_bytes,
                         void* copy_bytes, size_t count) {
  auto* const out = static_cast<typename Type::T*>(out_bytes);
  auto* const copy = static_cast<typename Type::T*>(copy_bytes);
  size_t done = 0;
  switch (n) {
    case 2:
      done = SumFew<Type, 2>(in, out, copy, count);
      break;
    case 3:
      done = SumFew<Type, 3>(in, out, copy, count);
      break;
    case 4:
      done = SumFew<Type, 4>(in, out, copy, count);
      break;
    default:
      done = SumMany<Type>(in, n, out, copy, count);
  }
  if (done < count) SumTail<Type>(in, n, out, copy, done, count);
}

void SumTyped(const void* const* in, int n, void* out, void* copy, size_t count,
              DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return SumAll<Float32>(in, n, out, copy, count);
    case DataType::kBFloat16:
      return SumAll<BFloat16>(in, n, out, copy, count);
    case DataType::kFloat16:
      return SumAll<Float16>(in, n, out, copy, count);
    case DataType::kInt64:
      return SumAll<Int64>(in, n, out, copy, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elasticdl::collective::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elasticdl::collective {
namespace internal {
HWY_EXPORT(SumTyped);
}  // namespace internal

void Sum(const void* const* in, int n, void* out, void* copy, size_t count,
         DataType type) {
  HWY_DYNAMIC_DISPATCH(internal::SumTyped)(in, n, out, copy, count, type);
}

}  // namespace elasticdl::collective
#endif  // HWY_ONCE
