#include "elasticdl/collective/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace elasticdl::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Has(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

TEST(PeersTest, SmallWorldsAreAFullMesh) {
  EXPECT_THAT(Peers(1, 0), IsEmpty());
  EXPECT_THAT(Peers(4, 2), ElementsAre(0, 1, 3));
  EXPECT_EQ(Peers(kFullMeshMembers, 0).size(), kFullMeshMembers - 1u);
}

TEST(PeersTest, LargeWorldsAreSparse) {
  EXPECT_THAT(Peers(8, 0, 1), ElementsAre(1, 2, 4, 6, 7));
  EXPECT_THAT(Peers(2, 1, 1), ElementsAre(0));
  EXPECT_LE(Peers(10000, 17).size(), 28u);
}

// Both ends of a connection must want it, and the algorithms of
// MeshCommunicator must find what they need.
TEST(PeersTest, SymmetricAndEnough) {
  for (int size = 2; size <= 130; ++size) {
    int doubled = 1;
    while (doubled * 2 <= size) doubled *= 2;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<int> peers = Peers(size, rank, 1);
      EXPECT_TRUE(std::is_sorted(peers.begin(), peers.end()));
      EXPECT_FALSE(Has(peers, rank));
      for (const int peer : peers) {
        EXPECT_TRUE(Has(Peers(size, peer, 1), rank)) << size;
      }
      for (int distance = 1; distance < size; distance *= 2) {
        EXPECT_TRUE(Has(peers, (rank + distance) % size));
        const int partner = rank ^ distance;
        if (rank < doubled && partner < doubled) {
          EXPECT_TRUE(Has(peers, partner)) << size << " " << rank;
        }
      }
      if (rank >= doubled) {
        EXPECT_TRUE(Has(peers, rank - doubled));
      }
    }
  }
}

std::vector<std::string> Hosts(int hosts, int on_each) {
  std::vector<std::string> all;
  for (int i = 0; i < hosts * on_each; ++i) {
    all.push_back(absl::StrCat("host-", i % hosts));
  }
  return all;
}

TEST(NeededOffersTest, AllInSmallWorlds) {
  EXPECT_THAT(NeededOffers(Hosts(kFullMeshMembers, 1), "auto"), IsEmpty());
}

TEST(NeededOffersTest, AllForBackendsThatConnectAll) {
  for (const char* backend : {"gloo", "mpi", "nonsense"}) {
    EXPECT_THAT(NeededOffers(Hosts(100, 1), backend), IsEmpty()) << backend;
  }
  // One host: shared memory.
  EXPECT_THAT(NeededOffers(Hosts(1, 100), "auto"), IsEmpty());
}

TEST(NeededOffersTest, PeersOverSockets) {
  for (const char* backend : {"auto", "tcp"}) {
    const auto needed = NeededOffers(Hosts(100, 1), backend);
    ASSERT_EQ(needed.size(), 100u);
    for (int rank = 0; rank < 100; ++rank) {
      EXPECT_EQ(needed[rank], Peers(100, rank));
    }
  }
}

TEST(NeededOffersTest, OwnHostAndLeaders) {
  // 40 hosts with three members each; ranks 0 to 39 are their leaders.
  const auto needed = NeededOffers(Hosts(40, 3), "auto");
  ASSERT_EQ(needed.size(), 120u);
  EXPECT_THAT(needed[47], ElementsAre(7, 47, 87));
  for (const int own : {7, 47, 87}) EXPECT_TRUE(Has(needed[7], own));
  for (const int peer : Peers(40, 7)) EXPECT_TRUE(Has(needed[7], peer));
  EXPECT_EQ(needed[7].size(), 3 + Peers(40, 7).size());
}

}  // namespace
}  // namespace elasticdl::collective
