// Which members can use NCCL together, and what a process without it is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "elasticdl/collective/nccl.h"
#include "nccl/offers.h"

namespace elasticdl::collective {
namespace {

using ::testing::HasSubstr;

WorldSpec MakeWorld(const std::vector<std::string>& hosts) {
  WorldSpec world;
  world.generation = 3;
  world.secret = "secret";
  world.hosts = hosts;
  return world;
}

// Of a member with a GPU of its own.
NcclOffer MakeOffer(int rank) {
  NcclOffer offer;
  offer.address = {"127.0.0.1", static_cast<uint16_t>(1000 + rank)};
  offer.nccl_version = 22809;
  offer.gpu = "0000:0" + std::to_string(rank) + ":00.0";
  offer.other = "other";
  return offer;
}

TEST(NcclOffersTest, SurviveTheJourney) {
  WorldSpec world = MakeWorld({"a", "a"});
  std::vector<std::string> sealed;
  for (world.rank = 0; world.rank < 2; ++world.rank) {
    sealed.push_back(SealNcclOffer(world, MakeOffer(world.rank)));
  }
  world.rank = 0;
  const auto opened = OpenNcclOffers(world, sealed);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ(opened->size(), 2u);
  EXPECT_EQ((*opened)[1].gpu, "0000:01:00.0");
  EXPECT_EQ((*opened)[1].address.port, 1001);
  EXPECT_EQ((*opened)[1].other, "other");
  EXPECT_TRUE(CheckNcclOffers(world, *opened).ok());
}

TEST(NcclOffersTest, AGpuBelongsToOneMember) {
  std::vector<NcclOffer> offers = {MakeOffer(0), MakeOffer(1), MakeOffer(2)};
  offers[2].gpu = offers[0].gpu;
  // On another host it is another GPU.
  EXPECT_TRUE(CheckNcclOffers(MakeWorld({"a", "a", "b"}), offers).ok());
  const absl::Status shared =
      CheckNcclOffers(MakeWorld({"a", "b", "a"}), offers);
  EXPECT_THAT(std::string(shared.message()),
              HasSubstr("ranks 0 and 2 share one GPU"));
}

TEST(NcclOffersTest, AllHaveTheSameNccl) {
  const WorldSpec world = MakeWorld({"a", "a"});
  std::vector<NcclOffer> offers = {MakeOffer(0), MakeOffer(1)};
  offers[1].nccl_version = 22203;
  EXPECT_THAT(std::string(CheckNcclOffers(world, offers).message()),
              HasSubstr("rank 1 has NCCL 22203, rank 0 has 22809"));
  offers[1].nccl_version = 0;
  EXPECT_THAT(std::string(CheckNcclOffers(world, offers).message()),
              HasSubstr("rank 1 has no NCCL"));
}

TEST(OpenNcclTest, SaysWhyThereIsNone) {
  NcclOptions options;
  options.plugin = "/nowhere/libelasticdl_nccl.so";
  const absl::Status status = OpenNccl(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--collective=auto"));
}

// The plugin with the libraries that it was linked with.
TEST(OpenNcclTest, LoadsTheRealLibraries) {
  if (access(ELASTICDL_NCCL_PLUGIN, R_OK) != 0) {
    GTEST_SKIP() << "built without NCCL";
  }
  NcclOptions options;
  options.plugin = ELASTICDL_NCCL_PLUGIN;
  const auto runtime = OpenNccl(options);
  if (runtime.ok()) {
    EXPECT_THAT(Describe(**runtime), HasSubstr("NCCL 2."));
  } else {
    EXPECT_THAT(std::string(runtime.status().message()),
                HasSubstr("GPU 0 cannot be used: look for GPUs: "));
  }
}

}  // namespace
}  // namespace elasticdl::collective
