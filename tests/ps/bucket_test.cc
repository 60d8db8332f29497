// The map from buckets to servers.
#include "elasticdl/ps/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/ps/dense_layout.h"

namespace elasticdl::ps {
namespace {

std::vector<int> Shares(const BucketMap& map) {
  std::vector<int> shares(static_cast<size_t>(map.servers()));
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    ++shares[static_cast<size_t>(map.owner(bucket))];
  }
  return shares;
}

TEST(BucketMapTest, EveryNumberOfServersGetsAnEvenShare) {
  for (int servers = 1; servers <= 200; ++servers) {
    const auto shares = Shares(BucketMap::Even(servers));
    const auto [least, most] =
        std::minmax_element(shares.begin(), shares.end());
    EXPECT_LE(*most - *least, 1) << servers;
  }
  EXPECT_EQ(Shares(BucketMap::Even(kMaxServers)),
            std::vector<int>(kMaxServers, 1));
}

TEST(BucketMapTest, RebalancingMovesNoMoreThanItMust) {
  BucketMap map = BucketMap::Even(2);
  for (const int servers : {3, 1, 2, 7, 7, 5, 32, 31}) {
    const BucketMap next = map.Rebalanced(servers);
    EXPECT_EQ(next.version(), map.version() + 1);
    const auto shares = Shares(next);
    const auto [least, most] =
        std::minmax_element(shares.begin(), shares.end());
    EXPECT_LE(*most - *least, 1) << servers;
    int moved = 0;
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      if (next.owner(bucket) != map.owner(bucket)) ++moved;
    }
    // What is above the new share of a server that stays, and all of the
    // others.
    const auto before = Shares(map);
    int least_moves = 0;
    for (int server = 0; server < map.servers(); ++server) {
      const int had = before[static_cast<size_t>(server)];
      least_moves +=
          server < servers
              ? std::max(0, had - shares[static_cast<size_t>(server)])
              : had;
    }
    EXPECT_EQ(moved, least_moves) << servers;
    map = next;
  }
}

TEST(BucketMapTest, WrongOnesAreRefused) {
  EXPECT_FALSE(BucketMap::Make(1, 0, std::vector<int>(kBuckets, 0)).ok());
  EXPECT_FALSE(BucketMap::Make(1, 2, std::vector<int>(kBuckets - 1, 0)).ok());
  EXPECT_FALSE(BucketMap::Make(1, 2, std::vector<int>(kBuckets, 2)).ok());
  EXPECT_FALSE(BucketMap::Make(1, 2, std::vector<int>(kBuckets, -1)).ok());
  EXPECT_TRUE(BucketMap::Make(1, 2, std::vector<int>(kBuckets, 1)).ok());
}

// The Python ElasticDL left half of 32 servers without dense parameters.
TEST(DenseLayoutTest, AllServersGetDenseParameters) {
  v1::PsDefinition definition;
  for (int i = 0; i < 2000; ++i) {
    auto& dense = *definition.add_dense();
    dense.set_name(absl::StrCat("dense_", i, "/kernel:0"));
    dense.add_shape(10);
  }
  for (const int servers : {2, 7, 32, 64}) {
    const BucketMap map = BucketMap::Even(servers);
    int64_t sum = 0;
    for (int server = 0; server < servers; ++server) {
      int64_t values = 0;
      for (const DenseSlice& slice : DenseLayout(definition, map, server)) {
        values += slice.size;
      }
      EXPECT_GT(values, 20000 / servers / 3) << server << " of " << servers;
      sum += values;
    }
    EXPECT_EQ(sum, 20000);
  }
}

TEST(DenseLayoutTest, ALargeParameterIsSpread) {
  v1::PsDefinition definition;
  auto& dense = *definition.add_dense();
  dense.set_name("embedding/kernel");
  dense.add_shape(1000000);
  dense.add_shape(10);
  const BucketMap map = BucketMap::Even(4);
  std::vector<bool> seen(10000000);
  for (int server = 0; server < 4; ++server) {
    int64_t values = 0;
    for (const DenseSlice& slice : DenseLayout(definition, map, server)) {
      values += slice.size;
      for (int64_t i = 0; i < slice.size; ++i) {
        ASSERT_FALSE(seen[static_cast<size_t>(slice.offset + i)]);
        seen[static_cast<size_t>(slice.offset + i)] = true;
      }
    }
    EXPECT_NEAR(static_cast<double>(values), 2.5e6, 0.6e6) << server;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
}

TEST(DenseLayoutTest, ImpossibleShapesAreRefused) {
  v1::PsDefinition definition;
  auto& dense = *definition.add_dense();
  dense.set_name("w");
  dense.add_shape(-1);
  EXPECT_FALSE(CountDense(definition).ok());
  dense.set_shape(0, int64_t{1} << 40);
  dense.add_shape(int64_t{1} << 40);
  EXPECT_FALSE(CountDense(definition).ok());
  dense.set_shape(1, 0);
  EXPECT_EQ(CountDense(definition).value_or(-1), 0);
  *definition.add_dense() = dense;
  EXPECT_FALSE(CountDense(definition).ok());
}

// Everything on disk depends on them.
TEST(HashTest, StaysAsItIs) {
  EXPECT_EQ(HashName("embedding"), HashName(std::string("embedding")));
  EXPECT_EQ(BucketOf(HashName("dense/kernel:0")), 897);
  EXPECT_EQ(BucketOf(HashRow(HashName("t"), -1)), 920);
}

}  // namespace
}  // namespace elasticdl::ps
