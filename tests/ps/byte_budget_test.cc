#include "byte_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <vector>

#include "elasticdl/common/thread.h"

namespace elasticdl::ps {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

TEST(ByteBudgetTest, LetsInWhatFits) {
  ByteBudget budget(100);
  std::optional<ByteBudget::Share> first = *budget.Take(60, kLong);
  const auto second = budget.Take(40, kLong);
  EXPECT_TRUE(second.ok());
  EXPECT_TRUE(budget.Take(0, absl::ZeroDuration()).ok());
  const auto third = budget.Take(1, absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(third.status())) << third.status();
  first.reset();
  EXPECT_TRUE(budget.Take(60, absl::ZeroDuration()).ok());
}

TEST(ByteBudgetTest, WhatIsTooLargeIsLetInAlone) {
  ByteBudget budget(100);
  {
    const auto large = budget.Take(1000, kLong);
    ASSERT_TRUE(large.ok());
    EXPECT_FALSE(budget.Take(1, absl::ZeroDuration()).ok());
  }
  const auto small = budget.Take(1, kLong);
  ASSERT_TRUE(small.ok());
  EXPECT_FALSE(budget.Take(1000, absl::ZeroDuration()).ok());
}

TEST(ByteBudgetTest, StopEndsAllWaits) {
  ByteBudget budget(10);
  const auto all = budget.Take(10, kLong);
  std::vector<Thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back("take", [&] {
      EXPECT_TRUE(absl::IsUnavailable(budget.Take(5, kLong).status()));
    });
  }
  budget.Stop();
}

TEST(ByteBudgetTest, NeverHoldsMore) {
  constexpr uint64_t kBytes = 100;
  ByteBudget budget(kBytes);
  std::atomic<uint64_t> used = 0;
  std::vector<Thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back("take", [&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int k = 0; k < 2000; ++k) {
        const uint64_t bytes = 1 + random() % (kBytes + 20);
        const auto share = budget.Take(bytes, kLong);
        ASSERT_TRUE(share.ok()) << share.status();
        const uint64_t counted = std::min(bytes, kBytes);
        EXPECT_LE(used.fetch_add(counted) + counted, kBytes);
        used.fetch_sub(counted);
      }
    });
  }
}

}  // namespace
}  // namespace elasticdl::ps
