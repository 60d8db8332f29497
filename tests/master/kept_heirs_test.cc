#include "kept_heirs.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

TEST(KeptHeirsTest, TwoCrashesBeforeTheWorldIsLevelAreEnough) {
  KeptHeirs heirs(/*task_max_failures=*/3);
  heirs.OnChosen(/*lineage=*/1, /*step=*/50);
  heirs.OnPrepared(/*worker_id=*/1, /*generation=*/2);
  heirs.OnCrash(1);
  EXPECT_EQ(heirs.Verdict(), "");
  heirs.OnPrepared(2, 3);
  heirs.OnCrash(2);
  EXPECT_TRUE(heirs.IsStateBlamed(1) && heirs.IsStateBlamed(2));
  EXPECT_EQ(heirs.Verdict(), "2 worlds crashed when they took over step 50");
}

TEST(KeptHeirsTest, AWorldCountsOnce) {
  KeptHeirs heirs(3);
  heirs.OnChosen(1, 50);
  for (int64_t id = 1; id <= 4; ++id) heirs.OnPrepared(id, 2);
  for (int64_t id = 1; id <= 4; ++id) heirs.OnCrash(id);
  EXPECT_EQ(heirs.Verdict(), "");
}

TEST(KeptHeirsTest, OnlyHeirsCount) {
  KeptHeirs heirs(3);
  heirs.OnChosen(1, 50);
  // Those who have left it.
  heirs.OnCrash(1);
  heirs.OnCrash(2);
  EXPECT_EQ(heirs.Verdict(), "");
}

// The task that may be to blame is set aside first.
TEST(KeptHeirsTest, ALevelWorldMayCrashMoreOften) {
  KeptHeirs heirs(/*task_max_failures=*/3);
  for (int64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(heirs.Verdict(), "");
    heirs.OnChosen(1, 50);
    heirs.OnPrepared(id, id);
    heirs.OnLevel(id);
    heirs.OnCrash(id);
    EXPECT_FALSE(heirs.IsStateBlamed(id));
  }
  EXPECT_EQ(heirs.Verdict(),
            "4 worlds that began with step 50 crashed before the next one");
}

TEST(KeptHeirsTest, AStepOrAnotherStateClearsIt) {
  KeptHeirs heirs(1);
  const auto crash = [&](int64_t id) {
    heirs.OnPrepared(id, id);
    heirs.OnCrash(id);
  };
  heirs.OnChosen(1, 50);
  crash(1);
  // The state itself is committed when it is chosen.
  heirs.OnCommit(50);
  heirs.OnChosen(1, 50);
  heirs.OnCommit(51);
  heirs.OnChosen(1, 51);
  crash(2);
  EXPECT_EQ(heirs.Verdict(), "");
  heirs.OnChosen(2, 51);
  crash(3);
  EXPECT_EQ(heirs.Verdict(), "");
  crash(4);
  EXPECT_NE(heirs.Verdict(), "");
  heirs.Forget();
  EXPECT_EQ(heirs.Verdict(), "");
}

}  // namespace
}  // namespace elasticdl::master
