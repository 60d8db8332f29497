#include "elasticdl/ledger.h"

#include <numeric>
#include <utility>

#include "elasticdl/common/check.h"
#include "elasticdl/common/hash.h"

namespace elasticdl::ledger {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mixer that is a
// bijection of 64 bits. Good enough for shuffling, and simple enough to keep
// unchanged forever.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  static uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
  }

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return Mix(state_);
  }

  // Uniform in [0, bound), bound > 0: the upper half of a 32 x 32 bit product,
  // repeated while the result would be biased (Lemire 2019).
  uint32_t Below(uint32_t bound) {
    const uint32_t reject_below = -bound % bound;
    for (;;) {
      const uint64_t product = (Next() >> 32) * bound;
      if (static_cast<uint32_t>(product) >= reject_below) {
        return static_cast<uint32_t>(product >> 32);
      }
    }
  }

 private:
  uint64_t state_;
};

uint64_t Combine(uint64_t hash, uint64_t value) {
  return SplitMix64::Mix(hash + 0x9e3779b97f4a7c15ULL) ^
         SplitMix64::Mix(value + 0x632be59bd9b4e019ULL);
}

uint64_t NotZero(uint64_t seed) { return seed == 0 ? 1 : seed; }

}  // namespace

std::vector<uint32_t> Permutation(uint64_t seed, uint32_t size) {
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  if (seed == 0) return order;
  SplitMix64 random(seed);
  for (uint32_t i = size; i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  return order;
}

uint64_t EpochSeed(uint64_t seed, int32_t epoch) {
  return NotZero(SplitMix64::Mix(Combine(seed, static_cast<uint32_t>(epoch))));
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
