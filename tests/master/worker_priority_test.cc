// The grammar and the fraction rule of --worker_pod_priority.
#include "worker_priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WorkerPriorityTest, ParsesEveryForm) {
  EXPECT_EQ(ParseWorkerPriority("")->all, "");
  EXPECT_EQ(ParseWorkerPriority("high")->all, "high");
  EXPECT_EQ(ParseWorkerPriority("my-class")->all, "my-class");
  EXPECT_LT(ParseWorkerPriority("low")->high_fraction, 0);
  EXPECT_EQ(ParseWorkerPriority("0.5")->high_fraction, 0.5);
  EXPECT_EQ(ParseWorkerPriority("high=0.25")->high_fraction, 0.25);
  EXPECT_EQ(ParseWorkerPriority("1")->high_fraction, 1);
  for (const char* bad :
       {"1.5", "-0.1", "high=2", "high=x", "low=0.5", "nan"}) {
    EXPECT_FALSE(ParseWorkerPriority(bad).ok()) << bad;
  }
}

TEST(WorkerPriorityTest, FractionTakesAlternatelyFromBothEnds) {
  EXPECT_THAT(HighPrioritySlots(10, 0.5), ElementsAre(0, 1, 2, 8, 9));
  EXPECT_THAT(HighPrioritySlots(1, 0.5), ElementsAre(0));
  EXPECT_THAT(HighPrioritySlots(3, 0.5), ElementsAre(0, 2));
  EXPECT_THAT(HighPrioritySlots(4, 0), IsEmpty());
  EXPECT_THAT(HighPrioritySlots(3, 1), ElementsAre(0, 1, 2));
}

TEST(WorkerPriorityTest, RoundsUpButNotByFloatingPointNoise) {
  for (int64_t n = 1; n <= 1000; ++n) {
    for (int64_t tenths = 0; tenths <= 10; ++tenths) {
      EXPECT_EQ(NumHighPriority(n, static_cast<double>(tenths) / 10),
                (n * tenths + 9) / 10)
          << n << " * 0." << tenths;
    }
  }
}

}  // namespace
}  // namespace elasticdl::master
