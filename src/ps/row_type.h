// The type of a row's stored values. Arithmetic is in float; this is how values
// get there and back, with the same bits on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::ps {

enum class RowType { kFloat32, kBfloat16, kFloat16 };

// "" is float32. INVALID_ARGUMENT for an unknown name.
absl::StatusOr<RowType> ParseRowType(absl::string_view name);
inline size_t BytesOf(RowType type) {
  return type == RowType::kFloat32 ? 4 : 2;
}

void LoadValues(RowType type, const char* from, float* to, size_t count);
// To the nearest value, ties to even; finite values stay finite.
void StoreNearest(RowType type, const float* from, char* to, size_t count);
// Stochastic rounding: up or down at random, so that the expected value is
// exact. An update smaller than the distance between two stored values is not
// lost but applied occasionally. The random bits follow from `seed` and the
// value's position. Values that can be stored are stored as they are.
void StoreRandomly(RowType type, uint64_t seed, const float* from, char* to,
                   size_t count);

}  // namespace elasticdl::ps
