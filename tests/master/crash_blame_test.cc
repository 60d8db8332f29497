#include "crash_blame.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

constexpr int64_t kMaxFailures = 3;

TEST(CrashBlameTest, TheTaskIsBlamedForTheFirstCrashes) {
  CrashBlame blame(kMaxFailures);
  // So often that the task is set aside.
  for (int64_t id = 0; id <= kMaxFailures; ++id) {
    blame.OnCrash(id, /*tasks=*/1);
    EXPECT_TRUE(blame.IsTaskBlamed(id)) << id;
  }
  // Nothing works at all.
  blame.OnCrash(9, 1);
  EXPECT_FALSE(blame.IsTaskBlamed(9));
}

TEST(CrashBlameTest, WithoutATaskTheSlotIsBlamed) {
  CrashBlame blame(kMaxFailures);
  blame.OnCrash(1, /*tasks=*/0);
  EXPECT_FALSE(blame.IsTaskBlamed(1));
}

TEST(CrashBlameTest, ACommitProvesThatSomethingWorks) {
  CrashBlame blame(kMaxFailures);
  for (int64_t id = 0; id <= kMaxFailures; ++id) blame.OnCrash(id, 1);
  blame.OnCommit();
  blame.OnCrash(9, 1);
  EXPECT_TRUE(blame.IsTaskBlamed(9));
}

// Commits between the crashes, but no task is ever convicted: that must not go
// on for ever.
TEST(CrashBlameTest, CrashesWithoutAConvictionAreHeldAgainstTheSlot) {
  CrashBlame blame(kMaxFailures);
  int64_t id = 0;
  for (; id < 2 * (kMaxFailures + 1); ++id) {
    blame.OnCrash(id, 1);
    EXPECT_TRUE(blame.IsTaskBlamed(id)) << id;
    blame.OnCommit();
  }
  blame.OnCrash(id, 1);
  EXPECT_FALSE(blame.IsTaskBlamed(id));
  // A task was set aside: that explains its failures and the first crash.
  blame.OnCommit();
  blame.OnQuarantined(kMaxFailures);
  blame.OnCrash(++id, 1);
  EXPECT_TRUE(blame.IsTaskBlamed(id));
}

TEST(CrashBlameTest, CarefulUntilTheRecordsAtStakeAreDone) {
  CrashBlame blame(kMaxFailures);
  EXPECT_FALSE(blame.suspects_tasks());
  EXPECT_FALSE(blame.IsCareful(v1::TRAINING, 0));
  blame.BeCareful(/*records_done=*/100, /*evaluating=*/false);
  EXPECT_TRUE(blame.suspects_tasks());
  EXPECT_TRUE(blame.IsCareful(v1::TRAINING, 99));
  EXPECT_TRUE(blame.IsCareful(v1::PREDICTION, 99));
  EXPECT_FALSE(blame.IsCareful(v1::TRAINING, 100));
  EXPECT_FALSE(blame.IsCareful(v1::EVALUATION, 0));
  // A crash at fewer records does not end it sooner.
  blame.BeCareful(50, /*evaluating=*/true);
  EXPECT_TRUE(blame.IsCareful(v1::TRAINING, 99));
  EXPECT_TRUE(blame.IsCareful(v1::EVALUATION, 99));
  blame.OnEvaluationEnd();
  EXPECT_FALSE(blame.IsCareful(v1::EVALUATION, 99));
}

}  // namespace
}  // namespace elasticdl::master
