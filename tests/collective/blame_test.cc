#include <gtest/gtest.h>

#include "elasticdl/collective/communicator.h"
#include "host_groups.h"

namespace elasticdl::collective {
namespace {

int Blamed(const std::string& reason) {
  return BlamedRank(absl::AbortedError(reason));
}

TEST(BlameTest, WhoIsNotHeard) {
  EXPECT_EQ(Blamed("rank 1 lost rank 2: Connection reset by peer"), 2);
  EXPECT_EQ(Blamed("rank 3 waited for rank 12 in vain"), 12);
  EXPECT_EQ(Blamed("connect to rank 0: no route to host"), 0);
  EXPECT_EQ(Blamed("rank 4 did not connect in time"), 4);
  EXPECT_EQ(Blamed("rank 5 (process 123) has ended"), 5);
  EXPECT_EQ(Blamed("rank 5 (process 123) died"), 5);
}

TEST(BlameTest, WhoGaveUp) {
  EXPECT_EQ(Blamed("rank 6 left the world"), 6);
  EXPECT_EQ(Blamed("rank 6 left or broke the world"), 6);
}

TEST(BlameTest, AtTheEndOfTheText) {
  EXPECT_EQ(Blamed("lost it to rank 7"), 7);
}

TEST(BlameTest, Nobody) {
  EXPECT_EQ(Blamed(""), -1);
  EXPECT_EQ(Blamed("the master says so"), -1);
  EXPECT_EQ(Blamed("rank and file"), -1);
  EXPECT_EQ(Blamed("rank 99999999999999999999 left"), -1);
  EXPECT_EQ(BlamedRank(absl::OkStatus()), -1);
}

// Rank 1 of those on a host need not be rank 1 of the world.
TEST(BlameTest, NobodyInAPartOfTheWorld) {
  EXPECT_EQ(Blamed(std::string(kPartOfWorld) + ": rank 0 lost rank 1: gone"),
            -1);
}

}  // namespace
}  // namespace elasticdl::collective
