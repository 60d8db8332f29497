#include "local/relaunch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

namespace elasticdl::cli {
namespace {

using ::testing::Optional;

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(RelaunchRuleTest, WaitsLongerEachTimeAndThenGivesUp) {
  RelaunchRule rule{{}};
  EXPECT_THAT(rule.OnKilled(kStart), Optional(absl::ZeroDuration()));
  for (const int seconds : {1, 2, 4, 8}) {
    EXPECT_THAT(rule.OnKilled(kStart), Optional(absl::Seconds(seconds)));
  }
  EXPECT_EQ(rule.OnKilled(kStart + absl::Minutes(4)), std::nullopt);
  EXPECT_EQ(rule.restarts(), 5);
}

TEST(RelaunchRuleTest, OldOnesDoNotCount) {
  RelaunchRule rule{{}};
  absl::Time now = kStart;
  for (int i = 0; i < 100; ++i, now += absl::Minutes(6)) {
    EXPECT_THAT(rule.OnKilled(now), Optional(absl::ZeroDuration()));
  }
  EXPECT_EQ(rule.restarts(), 100);
}

TEST(RelaunchRuleTest, NotForEver) {
  RelaunchRule::Options options;
  options.most_in_all = 7;
  RelaunchRule rule(options);
  absl::Time now = kStart;
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(rule.OnKilled(now).has_value());
    now += absl::Hours(1);
  }
  EXPECT_FALSE(rule.OnKilled(now).has_value());
}

// Never more than `most` in any window, and never refused with fewer.
TEST(RelaunchRuleTest, RandomTimes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  RelaunchRule::Options options;
  options.most = 3;
  options.window = absl::Seconds(60);
  options.most_in_all = 1'000'000;
  RelaunchRule rule(options);
  std::vector<absl::Time> started;
  absl::Time now = kStart;
  for (int i = 0; i < 2000; ++i) {
    now += absl::Seconds(random() % 40);
    size_t recent = 0;
    for (const absl::Time time : started) {
      if (time > now - options.window) ++recent;
    }
    const auto delay = rule.OnKilled(now);
    ASSERT_EQ(delay.has_value(), recent < options.most);
    if (!delay.has_value()) continue;
    ASSERT_LE(*delay, absl::Seconds(2));
    started.push_back(now);
  }
}

}  // namespace
}  // namespace elasticdl::cli
