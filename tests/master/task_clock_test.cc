#include "task_clock.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(TaskClockTest, AGivenTimeoutHoldsForAllTypes) {
  TaskClock clock(absl::Seconds(7));
  clock.Begin(1, At(0));
  clock.Completed(1, v1::TRAINING, At(1000));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(7));
  EXPECT_EQ(clock.Limit(v1::EVALUATION), absl::Seconds(7));
}

TEST(TaskClockTest, WithoutOneTheLongestTaskOfItsTypeDecides) {
  TaskClock clock(absl::ZeroDuration());
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(300));
  clock.Begin(1, At(0));
  clock.Completed(1, v1::TRAINING, At(10));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(300));
  clock.Begin(1, At(10));
  clock.Completed(1, v1::TRAINING, At(210));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(600));
  // A shorter one does not lower it; other types have their own.
  clock.Begin(1, At(210));
  clock.Completed(1, v1::TRAINING, At(211));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(600));
  EXPECT_EQ(clock.Limit(v1::PREDICTION), absl::Seconds(300));
}

TEST(TaskClockTest, ReportsCountForSilenceButNotForTheLengthOfATask) {
  TaskClock clock(absl::ZeroDuration());
  clock.Begin(1, At(0));
  clock.Report(1, At(150));
  EXPECT_EQ(clock.LastReport(1), At(150));
  clock.Completed(1, v1::TRAINING, At(200));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(600));
}

TEST(TaskClockTest, AllBeginAnew) {
  TaskClock clock(absl::ZeroDuration());
  clock.Begin(1, At(0));
  clock.Begin(2, At(5));
  clock.RestartAll(At(100));
  EXPECT_EQ(clock.LastReport(1), At(100));
  EXPECT_EQ(clock.LastReport(2), At(100));
  // The wait is not part of anybody's task.
  clock.Completed(1, v1::TRAINING, At(110));
  EXPECT_EQ(clock.Limit(v1::TRAINING), absl::Seconds(300));
}

}  // namespace
}  // namespace elasticdl::master
