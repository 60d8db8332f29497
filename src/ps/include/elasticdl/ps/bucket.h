// Buckets and the bucket map: every value is in one of a fixed number of
// buckets, and the map says which server holds which bucket
// (docs/design/0006-parameter-servers.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/limits.h"

namespace elasticdl::ps {

// Enough for any number of servers to get an even share. It is part of the
// format of logs and checkpoints and never changes.
inline constexpr int kBuckets = 1024;
inline constexpr int kMaxServers = kMaxParameterServers;
static_assert(kMaxServers <= kBuckets);

// The same on every machine and in every version.
uint64_t HashName(absl::string_view name);
// Of a row; `table` is HashName of the table's name.
inline uint64_t HashRow(uint64_t table, int64_t id) {
  return MixHash(static_cast<uint64_t>(id) ^ table);
}
// The id of the row with this hash: there is only one.
inline int64_t IdOfHash(uint64_t table, uint64_t hash) {
  return static_cast<int64_t>(UnmixHash(hash) ^ table);
}
// Of a chunk of the dense parameter whose HashName is `parameter`.
inline uint64_t HashChunk(uint64_t parameter, int64_t chunk) {
  return MixHash(parameter + static_cast<uint64_t>(chunk));
}
// The uppermost bits; the others find the row within its bucket.
inline constexpr int kHashBits = 54;
static_assert(kBuckets == 1 << (64 - kHashBits));
inline int BucketOf(uint64_t hash) {
  return static_cast<int>(hash >> kHashBits);
}

// Of BucketMap::Even, with which a job begins.
inline constexpr int64_t kFirstMapVersion = 1;

// A value. Thread-compatible.
class BucketMap {
 public:
  // No servers yet.
  BucketMap() = default;
  // Each of `servers` gets kBuckets / servers buckets, give or take one.
  static BucketMap Even(int servers);
  // INVALID_ARGUMENT unless there are kBuckets owners, each in [0, servers).
  static absl::StatusOr<BucketMap> Make(int64_t version, int servers,
                                        std::vector<int> owners);

  // The next version, for another number of servers: as even as Even, and moves
  // no bucket between two servers that both stay unless it must.
  BucketMap Rebalanced(int servers) const;

  int64_t version() const { return version_; }
  int servers() const { return servers_; }
  bool empty() const { return owners_.empty(); }
  int owner(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  const std::vector<int>& owners() const { return owners_; }

  friend bool operator==(const BucketMap& a, const BucketMap& b) {
    return a.version_ == b.version_ && a.servers_ == b.servers_ &&
           a.owners_ == b.owners_;
  }

 private:
  int64_t version_ = 0;
  int servers_ = 0;
  std::vector<int> owners_;
};

}  // namespace elasticdl::ps
