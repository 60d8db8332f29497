#include "rate_meter.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(RateMeterTest, CountsTheWindow) {
  RateMeter rate(absl::Seconds(5));
  EXPECT_EQ(rate.PerSecond(At(0)), 0);
  for (int i = 0; i <= 100; ++i) rate.Add(At(i * 0.1), i < 50 ? 1 : 10);
  EXPECT_NEAR(rate.PerSecond(At(10)), 100, 5);
}

TEST(RateMeterTest, StepsMayTakeLongerThanTheWindow) {
  RateMeter rate(absl::Seconds(5));
  for (int i = 0; i < 10; ++i) {
    rate.Add(At(i * 30), 60);
    if (i == 0) continue;
    EXPECT_DOUBLE_EQ(rate.PerSecond(At(i * 30)), 2);
    EXPECT_GT(rate.PerSecond(At(i * 30 + 29)), 1);
  }
}

TEST(RateMeterTest, FadesWhenNothingComes) {
  RateMeter rate(absl::Seconds(5));
  for (int i = 0; i <= 100; ++i) rate.Add(At(i * 0.1), 10);
  EXPECT_LT(rate.PerSecond(At(20)), 1.1);
  EXPECT_LT(rate.PerSecond(At(1000)), 0.02);
}

// An evaluation in the middle of training once made the job look faster.
TEST(JobRateTest, EvaluatedRecordsAreNotTrained) {
  JobRate rate(/*trains=*/true);
  for (int i = 0; i <= 100; ++i) rate.OnTrained(At(i * 0.1), 10);
  const double before = rate.PerSecond(At(10));
  EXPECT_NEAR(before, 100, 5);
  for (int i = 1; i <= 20; ++i) rate.OnTaskDone(At(10 + i * 0.1), 500);
  EXPECT_LT(rate.PerSecond(At(12)), before);
  EXPECT_NEAR(rate.TasksPerSecond(At(12)), 5000, 500);
}

TEST(JobRateTest, AJobThatOnlyEvaluatesHasItsTasks) {
  JobRate rate(/*trains=*/false);
  for (int i = 0; i <= 100; ++i) rate.OnTaskDone(At(i * 0.1), 10);
  EXPECT_NEAR(rate.PerSecond(At(10)), 100, 5);
}

}  // namespace
}  // namespace elasticdl::master
