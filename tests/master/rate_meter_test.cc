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

}  // namespace
}  // namespace elasticdl::master
