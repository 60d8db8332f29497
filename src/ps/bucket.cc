#include "elasticdl/ps/bucket.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/hash.h"

namespace elasticdl::ps {

uint64_t HashName(absl::string_view name) {
  // Mixed, because the upper bits of FNV-1a alone are poor for short names.
  return MixHash(Fnv1a(name));
}

BucketMap BucketMap::Even(int servers) {
  return BucketMap().Rebalanced(servers);
}

absl::StatusOr<BucketMap> BucketMap::Make(int64_t version, int servers,
                                          std::vector<int> owners) {
  if (servers < 1 || servers > kMaxServers) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket map for ", servers, " servers"));
  }
  if (owners.size() != kBuckets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket map with ", owners.size(), " buckets instead of ", kBuckets));
  }
  for (size_t bucket = 0; bucket < owners.size(); ++bucket) {
    if (owners[bucket] < 0 || owners[bucket] >= servers) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", bucket, " belongs to server ", owners[bucket],
                       " of ", servers));
    }
  }
  BucketMap map;
  map.version_ = version;
  map.servers_ = servers;
  map.owners_ = std::move(owners);
  return map;
}

BucketMap BucketMap::Rebalanced(int servers) const {
  ELASTICDL_CHECK(servers >= 1 && servers <= kMaxServers);
  // The first kBuckets % servers servers hold one more.
  std::vector<int> room(static_cast<size_t>(servers), kBuckets / servers);
  for (int server = 0; server < kBuckets % servers; ++server) {
    ++room[static_cast<size_t>(server)];
  }
  BucketMap next;
  next.version_ = version_ + 1;
  next.servers_ = servers;
  next.owners_.assign(kBuckets, -1);
  // Whoever stays keeps what it has, as far as its share goes.
  for (size_t bucket = 0; bucket < owners_.size(); ++bucket) {
    const int owner = owners_[bucket];
    if (owner >= servers || room[static_cast<size_t>(owner)] == 0) continue;
    next.owners_[bucket] = owner;
    --room[static_cast<size_t>(owner)];
  }
  int server = 0;
  for (int& owner : next.owners_) {
    if (owner >= 0) continue;
    while (room[static_cast<size_t>(server)] == 0) {
      server = (server + 1) % servers;
    }
    owner = server;
    --room[static_cast<size_t>(server)];
    server = (server + 1) % servers;
  }
  return next;
}

}  // namespace elasticdl::ps
