#include "elasticdl/ps/dense_layout.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace elasticdl::ps {
namespace {

// Far above any model, far below an overflow.
constexpr int64_t kMaxValues = int64_t{1} << 48;

int64_t CountOne(const v1::PsDefinition::Dense& dense) {
  int64_t count = 1;
  for (const int64_t size : dense.shape()) count *= size;
  return count;
}

}  // namespace

absl::StatusOr<int64_t> CountDense(const v1::PsDefinition& definition) {
  std::set<std::string> names;
  int64_t total = 0;
  bool buffers = false;
  for (const v1::PsDefinition::Dense& dense : definition.dense()) {
    if (buffers && !dense.buffer()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dense parameter ", dense.name(), " comes after a buffer"));
    }
    buffers = dense.buffer();
    if (!names.insert(dense.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("dense parameter ", dense.name(), " is there twice"));
    }
    int64_t count = 1;
    for (const int64_t size : dense.shape()) {
      if (size < 0 || (size > 0 && count > kMaxValues / size)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "dense parameter ", dense.name(), " has an impossible shape"));
      }
      count *= size;
    }
    total += count;
    if (total > kMaxValues) {
      return absl::InvalidArgumentError("too many dense values");
    }
  }
  return total;
}

int64_t CountParameters(const v1::PsDefinition& definition) {
  int64_t total = 0;
  for (const v1::PsDefinition::Dense& dense : definition.dense()) {
    if (!dense.buffer()) total += CountOne(dense);
  }
  return total;
}

std::vector<DenseChunk> DenseChunks(const v1::PsDefinition& definition,
                                    const BucketMap& map, int server) {
  std::vector<DenseChunk> chunks;
  int64_t offset = 0;
  for (const v1::PsDefinition::Dense& dense : definition.dense()) {
    const uint64_t name = HashName(dense.name());
    const int64_t count = CountOne(dense);
    for (int64_t from = 0; from < count; from += kChunkValues) {
      const int bucket = BucketOf(HashChunk(name, from / kChunkValues));
      if (map.owner(bucket) != server) continue;
      chunks.push_back(
          {bucket, offset + from, std::min(kChunkValues, count - from)});
    }
    offset += count;
  }
  return chunks;
}

std::vector<DenseSlice> DenseLayout(const v1::PsDefinition& definition,
                                    const BucketMap& map, int server) {
  std::vector<DenseSlice> slices;
  for (const DenseChunk& chunk : DenseChunks(definition, map, server)) {
    if (!slices.empty() &&
        slices.back().offset + slices.back().size == chunk.offset) {
      slices.back().size += chunk.size;
    } else {
      slices.push_back({chunk.offset, chunk.size});
    }
  }
  return slices;
}

}  // namespace elasticdl::ps
