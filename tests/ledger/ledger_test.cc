#include "elasticdl/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace elasticdl::ledger {
namespace {

using ::testing::ElementsAre;

TEST(LedgerTest, PermutationHoldsEachNumberOnce) {
  for (uint32_t size : {0u, 1u, 2u, 3u, 100u, 5000u}) {
    std::vector<uint32_t> order = Permutation(size + 1, size);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, Permutation(0, size));
  }
}

// Frozen: a ledger in a checkpoint means the records that these numbers say.
TEST(LedgerTest, PermutationNeverChanges) {
  EXPECT_THAT(Permutation(0, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Permutation(1, 8), ElementsAre(0, 3, 7, 1, 2, 6, 5, 4));
  EXPECT_THAT(Permutation(42, 8), ElementsAre(4, 3, 2, 0, 7, 6, 1, 5));
  EXPECT_EQ(EpochSeed(7, 3), 11529831269719612226u);
  EXPECT_EQ(BlockSeed(7, 3, "data-00001", 512), 2581014470413062399u);
}

TEST(LedgerTest, SeedsDifferInEveryArgument) {
  std::set<uint64_t> seeds;
  for (uint64_t seed : {0, 1, 2}) {
    for (int epoch : {0, 1, 2}) {
      seeds.insert(EpochSeed(seed, epoch));
      for (const char* shard : {"", "a", "b"}) {
        for (int64_t block : {0, 64, 128}) {
          seeds.insert(BlockSeed(seed, epoch, shard, block));
        }
      }
    }
  }
  EXPECT_EQ(seeds.size(), 9u + 81u);
  EXPECT_EQ(seeds.count(0), 0u);
}

TEST(LedgerTest, FirstPlaceIsUniform) {
  constexpr int kSize = 8;
  constexpr int kTries = 8000;
  std::vector<int> count(kSize);
  for (int i = 0; i < kTries; ++i) {
    ++count[Permutation(BlockSeed(9, i, "s", 0), kSize)[0]];
  }
  // Standard deviation 30; six of them.
  for (const int n : count) EXPECT_NEAR(n, kTries / kSize, 180);
}

TEST(LedgerTest, RecordsOfRangesMakeUpTheBlock) {
  EXPECT_THAT(RecordsOf(0, 10, 20, 12, 15), ElementsAre(12, 13, 14));
  EXPECT_THAT(RecordsOf(5, 10, 20, 12, 12), ElementsAre());
  const std::vector<int64_t> whole = RecordsOf(5, 10, 20, 10, 20);
  std::vector<int64_t> parts = RecordsOf(5, 10, 20, 10, 13);
  for (const int64_t r : RecordsOf(5, 10, 20, 13, 20)) parts.push_back(r);
  EXPECT_EQ(parts, whole);
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, RecordsOf(0, 10, 20, 10, 20));
  EXPECT_NE(parts, whole);
}

}  // namespace
}  // namespace elasticdl::ledger
