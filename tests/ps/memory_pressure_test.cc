#include "memory_pressure.h"

#include <gtest/gtest.h>

#include <random>

namespace elasticdl::ps {
namespace {

TEST(MemoryPressureTest, NothingBeforeNineTenths) {
  EXPECT_FALSE(IsNearlyFull(1000000, 0));
  EXPECT_FALSE(IsNearlyFull(900, 1000));
  EXPECT_TRUE(IsNearlyFull(901, 1000));
  EXPECT_EQ(SlowDownFor(0, 1 << 30, 0), absl::ZeroDuration());
  EXPECT_EQ(SlowDownFor(100, 900, 1000), absl::ZeroDuration());
  // It has become smaller, or has not changed.
  EXPECT_EQ(SlowDownFor(950, 950, 1000), absl::ZeroDuration());
  EXPECT_EQ(SlowDownFor(980, 950, 1000), absl::ZeroDuration());
}

TEST(MemoryPressureTest, TheLessIsLeftTheLonger) {
  constexpr size_t kLimit = 1000000000;
  absl::Duration before = absl::ZeroDuration();
  for (size_t bytes = kLimit / 100 * 91; bytes < kLimit; bytes += 10000000) {
    const absl::Duration wait = SlowDownFor(bytes, bytes + 1000, kLimit);
    EXPECT_GT(wait, before) << bytes;
    EXPECT_LT(wait, kMostSlowDown);
    before = wait;
  }
  EXPECT_EQ(SlowDownFor(kLimit - 10, kLimit, kLimit), kMostSlowDown);
  EXPECT_EQ(SlowDownFor(kLimit, kLimit + 10, kLimit), kMostSlowDown);
}

// However many pushes it takes, the last tenth lasts: 2.3 times a minute until
// a hundredth is left.
TEST(MemoryPressureTest, TheLastTenthLastsForMinutes) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    constexpr size_t kLimit = 1000000000;
    size_t bytes = kLimit / 10 * 9;
    absl::Duration total = absl::ZeroDuration();
    while (bytes < kLimit / 100 * 99) {
      const size_t added = random() % 20000;
      total += SlowDownFor(bytes, bytes + added, kLimit);
      bytes += added;
    }
    EXPECT_NEAR(absl::ToDoubleSeconds(total), 60 * 2.3026, 1);
  }
}

}  // namespace
}  // namespace elasticdl::ps
