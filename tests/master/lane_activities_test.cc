#include "lane_activities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

absl::Time At(int milliseconds) {
  return absl::UnixEpoch() + absl::Milliseconds(milliseconds);
}

TEST(LaneActivitiesTest, AnEvaluationTakesFewLines) {
  LaneActivities activities;
  EXPECT_FALSE(activities.EvaluatorsDue(At(0), false));
  ASSERT_TRUE(activities.EvaluatorsDue(At(1), true));
  EXPECT_TRUE(activities.SetEvaluators(At(1), {0}));
  // Others come a little later.
  EXPECT_EQ(activities.next(), absl::InfiniteFuture());
  EXPECT_FALSE(activities.EvaluatorsDue(At(2), true));
  EXPECT_FALSE(activities.EvaluatorsDue(At(3), true));
  EXPECT_EQ(activities.next(), At(101));
  ASSERT_TRUE(activities.EvaluatorsDue(At(101), true));
  EXPECT_TRUE(activities.SetEvaluators(At(101), {0, 1, 2}));
  ASSERT_TRUE(activities.EvaluatorsDue(At(300), true));
  EXPECT_FALSE(activities.SetEvaluators(At(300), {0, 1, 2}));
  // The end is told at once, and so is the next beginning.
  EXPECT_FALSE(activities.EvaluatorsDue(At(150), true));
  ASSERT_TRUE(activities.EvaluatorsDue(At(151), false));
  EXPECT_TRUE(activities.SetEvaluators(At(151), {}));
  EXPECT_EQ(activities.next(), absl::InfiniteFuture());
  EXPECT_FALSE(activities.EvaluatorsDue(At(152), false));
  EXPECT_TRUE(activities.EvaluatorsDue(At(152), true));
}

TEST(LaneActivitiesTest, SavesAreToldWhenTheyBeginAndEnd) {
  LaneActivities activities;
  EXPECT_EQ(activities.TakeSavers(), std::nullopt);
  activities.OnSaving(3, 100);
  EXPECT_THAT(activities.TakeSavers(), Optional(ElementsAre(3)));
  EXPECT_EQ(activities.TakeSavers(), std::nullopt);
  // The next one begins before it is done.
  activities.OnSaving(3, 200);
  activities.OnSaved(3, 100);
  EXPECT_EQ(activities.TakeSavers(), std::nullopt);
  activities.OnSaved(3, 200);
  EXPECT_THAT(activities.TakeSavers(), Optional(IsEmpty()));
  activities.OnSaved(4, 200);
  activities.OnSaving(3, 300);
  activities.OnSaving(4, 300);
  EXPECT_THAT(activities.TakeSavers(), Optional(ElementsAre(3, 4)));
  activities.Remove(3);
  EXPECT_THAT(activities.TakeSavers(), Optional(ElementsAre(4)));
}

}  // namespace
}  // namespace elasticdl::master
