#include "elasticdl/common/log_limit.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl {
namespace {

using ::testing::Optional;

TEST(LogLimitTest, OneLineASecondAndTheNumberOfTheOthers) {
  LogLimit limit;
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  EXPECT_THAT(limit.Allow(start), Optional(0));
  for (int i = 1; i <= 7; ++i) {
    EXPECT_EQ(limit.Allow(start + absl::Milliseconds(100 * i)), std::nullopt);
  }
  EXPECT_THAT(limit.Allow(start + absl::Seconds(1)), Optional(7));
  EXPECT_THAT(limit.Allow(start + absl::Seconds(3)), Optional(0));
  EXPECT_EQ(LogLimit::Describe(0), "");
  EXPECT_EQ(LogLimit::Describe(7), " (and 7 more)");
}

}  // namespace
}  // namespace elasticdl
