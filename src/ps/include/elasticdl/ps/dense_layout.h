// Which parts of a model's dense parameters a server holds, and in which order.
// Worker and server compute it from the same definition and map.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Parameters are cut into chunks of so many values, so that a large one is
// spread over all servers. Part of the format, like kBuckets.
inline constexpr int64_t kChunkValues = 16384;

// Values [offset, offset + size) of all dense parameters one after the other.
struct DenseSlice {
  int64_t offset = 0;
  int64_t size = 0;
};

// Number of values of all dense parameters together. INVALID_ARGUMENT names a
// parameter with an impossible shape, a name that is there twice, or a place
// after a buffer.
absl::StatusOr<int64_t> CountDense(const v1::PsDefinition& definition);
// Of those, the ones that are not buffers. Only for definitions that CountDense
// accepts.
int64_t CountParameters(const v1::PsDefinition& definition);

// The unit that falls into a bucket.
struct DenseChunk {
  int bucket = 0;
  int64_t offset = 0;
  int64_t size = 0;
  friend bool operator==(const DenseChunk& a, const DenseChunk& b) {
    return a.bucket == b.bucket && a.offset == b.offset && a.size == b.size;
  }
};
// Those that `server` holds, by offset. Only for definitions that CountDense
// accepts.
std::vector<DenseChunk> DenseChunks(const v1::PsDefinition& definition,
                                    const BucketMap& map, int server);
// The same; chunks that are neighbours are one slice. In this order values are
// sent.
std::vector<DenseSlice> DenseLayout(const v1::PsDefinition& definition,
                                    const BucketMap& map, int server);

}  // namespace elasticdl::ps
