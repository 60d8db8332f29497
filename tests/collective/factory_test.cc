// Which backend a world gets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/backends.h"

namespace elasticdl::collective {
namespace {

// `counts` members on host "a", "b", ….
WorldSpec World(const std::vector<int>& counts) {
  WorldSpec world;
  for (size_t i = 0; i < counts.size(); ++i) {
    world.hosts.insert(world.hosts.end(), static_cast<size_t>(counts[i]),
                       std::string(1, static_cast<char>('a' + i)));
  }
  world.rank = 0;
  return world;
}

TEST(ChooseBackendTest, AutoTakesTheNearestWay) {
  EXPECT_EQ(*ChooseBackend(World({1}), "auto"), Backend::kSingle);
  EXPECT_EQ(*ChooseBackend(World({2}), "auto"), Backend::kShm);
  EXPECT_EQ(*ChooseBackend(World({1, 1}), "auto"), Backend::kTcp);
  EXPECT_EQ(*ChooseBackend(World({2, 1}), "auto"), Backend::kHierarchical);
}

TEST(ChooseBackendTest, AutoDoesWithoutSharedMemoryAboveItsLimit) {
  EXPECT_EQ(*ChooseBackend(World({kMaxShmMembers}), "auto"), Backend::kShm);
  EXPECT_EQ(*ChooseBackend(World({kMaxShmMembers + 1}), "auto"), Backend::kTcp);
  EXPECT_EQ(*ChooseBackend(World({3, kMaxShmMembers}), "auto"),
            Backend::kHierarchical);
  EXPECT_EQ(*ChooseBackend(World({3, kMaxShmMembers + 1}), "auto"),
            Backend::kTcp);
  // Who asks for it is told.
  EXPECT_EQ(BeginConnect(World({kMaxShmMembers + 1}), {"shm", "", ""})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChooseBackendTest, NamesMeanWhatTheySay) {
  EXPECT_EQ(*ChooseBackend(World({2}), "tcp"), Backend::kTcp);
  EXPECT_EQ(*ChooseBackend(World({2}), "gloo"), Backend::kGloo);
  EXPECT_EQ(*ChooseBackend(World({1}), "gloo"), Backend::kSingle);
  EXPECT_FALSE(ChooseBackend(World({1, 1}), "shm").ok());
  EXPECT_FALSE(ChooseBackend(World({2}), "smoke").ok());
}

TEST(ChooseBackendTest, RankMustBeInTheWorld) {
  WorldSpec world = World({2});
  world.rank = 2;
  EXPECT_FALSE(ChooseBackend(world, "auto").ok());
}

}  // namespace
}  // namespace elasticdl::collective
