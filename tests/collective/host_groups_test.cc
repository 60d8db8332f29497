#include "hierarchical/host_groups.h"

#include <gmock/gmock.h>

namespace elasticdl::collective {
namespace {

using testing::ElementsAre;

TEST(HostGroupsTest, GroupsByFirstAppearance) {
  WorldSpec world;
  world.generation = 3;
  world.secret = "s";
  world.hosts = {"b", "a", "b", "c", "a"};
  world.rank = 4;
  const HostGroups groups = GroupByHost(world);
  EXPECT_THAT(groups.members, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4),
                                          ElementsAre(3)));
  EXPECT_THAT(groups.host_of, ElementsAre(0, 1, 0, 2, 1));
  EXPECT_THAT(groups.place_of, ElementsAre(0, 0, 1, 0, 1));
  EXPECT_EQ(groups.largest(), 2);

  const WorldSpec local = LocalWorld(world, groups);
  EXPECT_EQ(local.rank, 1);
  EXPECT_THAT(local.hosts, ElementsAre("a", "a"));
  EXPECT_EQ(local.generation, 3);
  EXPECT_EQ(local.secret, "s");

  world.rank = 1;
  const WorldSpec leaders = LeaderWorld(world, groups);
  EXPECT_EQ(leaders.rank, 1);
  EXPECT_THAT(leaders.hosts, ElementsAre("b", "a", "c"));
}

TEST(LocalHostTest, IsTheSameEveryTime) {
  EXPECT_FALSE(LocalHost().empty());
  EXPECT_EQ(LocalHost(), LocalHost());
}

}  // namespace
}  // namespace elasticdl::collective
