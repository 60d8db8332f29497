#include "start_watch.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(StartWatchTest, GivesUpAfterTwoTriesForEachWorker) {
  StartWatch watch;
  for (int i = 1; i < 100; ++i) {
    EXPECT_FALSE(watch.OnWorkerKilled(At(i), 50)) << i;
  }
  EXPECT_TRUE(watch.OnWorkerKilled(At(100), 50));
  EXPECT_EQ(watch.killed(), 100);
}

TEST(StartWatchTest, AFewMayBeKilledHoweverSmallTheJob) {
  StartWatch watch;
  for (int i = 1; i < 20; ++i) {
    EXPECT_FALSE(watch.OnWorkerKilled(At(1000 * i), 1)) << i;
  }
  EXPECT_TRUE(watch.OnWorkerKilled(At(20000), 1));
}

TEST(StartWatchTest, GivesUpAfterALongTime) {
  StartWatch watch;
  for (int i = 0; i < 30; ++i) {
    EXPECT_FALSE(watch.OnWorkerKilled(At(i), 500)) << i;
  }
  EXPECT_FALSE(watch.OnWorkerKilled(At(599), 500));
  EXPECT_TRUE(watch.OnWorkerKilled(At(600), 500));
}

}  // namespace
}  // namespace elasticdl::master
