#include "elasticdl/ledger.h"

#include <numeric>
#include <utility>

#include "elasticdl/common/check.h"
#include "elasticdl/common/hash.h"

namespace elasticdl::ledger {
namespace {

// Uniform in [0, bound), bound > 0: the upper half of a 32 x 32 bit product,
// repeated while the result would be biased (Lemire 2019).
uint32_t Below(uint32_t bound, SplitMix64& random) {
  const uint32_t reject_below = -bound % bound;
  for (;;) {
    const uint64_t product = (random.Next() >> 32) * bound;
    if (static_cast<uint32_t>(product) >= reject_below) {
      return static_cast<uint32_t>(product >> 32);
    }
  }
}

// Different increments: with one, Combine(x, x) would always be 0.
uint64_t Combine(uint64_t hash, uint64_t value) {
  return MixHash(hash) ^ MixBits(value + 0x632be59bd9b4e019);
}

uint64_t NotZero(uint64_t seed) { return seed == 0 ? 1 : seed; }

}  // namespace

std::vector<uint32_t> Permutation(uint64_t seed, uint32_t size) {
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  if (seed == 0) return order;
  SplitMix64 random(seed);
  for (uint32_t i = size; i > 1; --i) {
    std::swap(order[i - 1], order[Below(i, random)]);
  }
  return order;
}

uint64_t EpochSeed(uint64_t seed, int32_t epoch) {
  return NotZero(MixBits(Combine(seed, static_cast<uint32_t>(epoch))));
}

uint64_t BlockSeed(uint64_t seed, int32_t epoch, absl::string_view shard,
                   int64_t block_begin) {
  uint64_t hash = EpochSeed(seed, epoch);
  hash = Combine(hash, Fnv1a(shard));
  hash = Combine(hash, static_cast<uint64_t>(block_begin));
  return NotZero(hash);
}

std::vector<int64_t> RecordsOf(uint64_t shuffle_seed, int64_t block_begin,
                               int64_t block_end, int64_t begin, int64_t end) {
  ELASTICDL_CHECK(block_begin <= begin && begin <= end && end <= block_end);
  ELASTICDL_CHECK(block_end - block_begin <= int64_t{UINT32_MAX});
  std::vector<int64_t> records(end - begin);
  std::iota(records.begin(), records.end(), begin);
  if (shuffle_seed == 0) return records;
  const std::vector<uint32_t> order =
      Permutation(shuffle_seed, static_cast<uint32_t>(block_end - block_begin));
  for (int64_t& record : records) {
    record = block_begin + order[record - block_begin];
  }
  return records;
}

}  // namespace elasticdl::ledger
