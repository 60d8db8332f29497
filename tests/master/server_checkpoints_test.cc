#include "server_checkpoints.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using State = ServerCheckpoints::State;
using When = ServerCheckpoints::When;

v1::LedgerRange Range(int64_t begin) {
  v1::LedgerRange range;
  range.set_shard("s");
  range.set_epoch(1);
  range.set_begin(begin);
  range.set_end(begin + 20);
  return range;
}

CommittedRange Committed(int64_t begin, int64_t end) {
  CommittedRange range;
  range.shard = "s";
  range.epoch = 1;
  range.begin = begin;
  range.end = end;
  return range;
}

TEST(ServerCheckpointsTest, IsDueOncePerInterval) {
  ServerCheckpoints saves({/*interval=*/10, /*wanted=*/true}, 0);
  EXPECT_FALSE(saves.Due(9, When::kTraining));
  EXPECT_TRUE(saves.Due(10, When::kTraining));
  EXPECT_TRUE(saves.Due(13, When::kTraining)) << "the step has passed";
  saves.BeginPause();
  saves.BeginSave(4);
  saves.EndRead(13);
  EXPECT_FALSE(saves.Due(19, When::kTraining));
  EXPECT_TRUE(saves.Due(20, When::kTraining));
}

TEST(ServerCheckpointsTest, TheLastStepIsDueUnlessItIsSaved) {
  ServerCheckpoints saves({0, true}, 7);
  EXPECT_FALSE(saves.Due(100, When::kTraining)) << "no interval";
  EXPECT_TRUE(saves.Due(100, When::kOver));
  EXPECT_FALSE(saves.Due(7, When::kOver)) << "what the job began with";
  saves.BeginSave(1);
  saves.EndRead(100);
  EXPECT_FALSE(saves.Due(100, When::kOver)) << "it is being written";
}

TEST(ServerCheckpointsTest, IsDueAgainWhenTheWriterIsLost) {
  ServerCheckpoints saves({0, true}, 7);
  saves.BeginSave(3);
  saves.EndRead(100);
  EXPECT_EQ(saves.writer(), 3);
  saves.WriterLost();
  EXPECT_TRUE(saves.Due(100, When::kOver));
  saves.BeginSave(4);
  saves.EndRead(100);
  saves.End(3, 100);
  EXPECT_EQ(saves.writer(), 4) << "not its word";
  saves.End(4, 100);
  EXPECT_EQ(saves.writer(), -1);
  EXPECT_FALSE(saves.Due(100, When::kOver));
}

TEST(ServerCheckpointsTest, WhatCannotBeReadIsNotTriedAgain) {
  ServerCheckpoints saves({10, true}, 0);
  saves.BeginSave(3);
  saves.End(/*worker_id=*/2, 10);
  EXPECT_EQ(saves.state(), State::kSaving) << "not the one that reads";
  saves.End(3, 10);
  EXPECT_EQ(saves.state(), State::kIdle);
  EXPECT_FALSE(saves.Due(10, When::kOver));
}

TEST(ServerCheckpointsTest, NothingIsDueWithoutAPlace) {
  const ServerCheckpoints saves({10, /*wanted=*/false}, 0);
  EXPECT_FALSE(saves.Due(50, When::kOver));
}

TEST(ServerCheckpointsTest, WaitsForWhatACrashedWorkerMayHavePushedInPart) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  EXPECT_FALSE(saves.Due(10, When::kTraining));
  saves.OnCommit(Committed(0, 40));
  EXPECT_FALSE(saves.Due(10, When::kTraining)) << "before it";
  saves.OnCommit(Committed(60, 80));
  EXPECT_FALSE(saves.Due(10, When::kTraining)) << "after it";
  saves.OnCommit(Committed(40, 50));
  EXPECT_FALSE(saves.Due(10, When::kTraining)) << "half of it";
  saves.OnCommit(Committed(50, 60));
  EXPECT_TRUE(saves.Due(10, When::kTraining));
}

TEST(ServerCheckpointsTest, SuspectsAreClearedInAnyOrder) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  saves.AddSuspect(Range(80));
  saves.AddSuspect(Range(80));
  saves.OnCommit(Committed(45, 50));
  saves.OnCommit(Committed(30, 42));
  saves.OnCommit(Committed(42, 45));
  saves.OnCommit(Committed(95, 120));
  EXPECT_FALSE(saves.Due(10, When::kTraining));
  saves.OnCommit(Committed(50, 95));
  EXPECT_FALSE(saves.has_suspects());
  EXPECT_TRUE(saves.Due(10, When::kTraining));
}

TEST(ServerCheckpointsTest, TheLastOneIsSavedWhateverIsSuspect) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  EXPECT_TRUE(saves.Due(10, When::kOver));
}

TEST(ServerCheckpointsTest, WhatIsQuarantinedIsNotWaitedFor) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  EXPECT_TRUE(saves.versions_may_differ());
  saves.OnQuarantined(Range(40));
  EXPECT_TRUE(saves.Due(10, When::kTraining));
  // Some servers may have it, and nobody gives it to the others any more.
  EXPECT_TRUE(saves.versions_may_differ());
}

TEST(ServerCheckpointsTest, OnlySuspectsLeaveServersApart) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  saves.OnQuarantined(Range(80));
  saves.OnCommit(Committed(40, 60));
  EXPECT_FALSE(saves.versions_may_differ());
}

TEST(ServerCheckpointsTest, HoldsTrainingFromThePauseToTheEnd) {
  ServerCheckpoints saves({10, true}, 0);
  EXPECT_FALSE(saves.holds_training());
  saves.BeginPause();
  EXPECT_EQ(saves.state(), State::kPausing);
  EXPECT_EQ(saves.pause(), 1);
  EXPECT_TRUE(saves.holds_training());
  saves.BeginSave(3);
  EXPECT_EQ(saves.saver(), 3);
  EXPECT_TRUE(saves.holds_training());
  saves.Cancel();
  EXPECT_FALSE(saves.holds_training());
  EXPECT_TRUE(saves.Due(10, When::kTraining)) << "it is tried again";
  saves.BeginPause();
  EXPECT_EQ(saves.pause(), 2);
}

TEST(ServerCheckpointsTest, TrainingIsBrokenOffWithAnExactLedgerOnly) {
  ServerCheckpoints saves({0, true}, 0);
  EXPECT_TRUE(saves.Due(10, When::kBreakingOff));
  saves.AddSuspect(Range(40));
  EXPECT_FALSE(saves.Due(10, When::kBreakingOff));
  EXPECT_FALSE(saves.Settled(10));
  saves.OnCommit(Committed(40, 60));
  saves.BeginSave(1);
  saves.EndRead(10);
  EXPECT_TRUE(saves.Settled(10));
  EXPECT_FALSE(saves.Due(10, When::kBreakingOff));
}

TEST(ServerCheckpointsTest, OnlyTheNewestPauseCounts) {
  ServerCheckpoints saves({10, true}, 0);
  saves.BeginPause();
  const int64_t first = saves.pause();
  saves.OnPaused(1, first);
  EXPECT_TRUE(saves.IsPaused(1));
  EXPECT_FALSE(saves.IsPaused(2));
  saves.Cancel();
  EXPECT_FALSE(saves.IsPaused(1)) << "it trains on";
  saves.OnPaused(2, first);
  EXPECT_FALSE(saves.IsPaused(2)) << "too late";
  saves.BeginPause();
  saves.OnPaused(2, first);
  EXPECT_FALSE(saves.IsPaused(2));
  saves.OnPaused(2, saves.pause());
  saves.BeginSave(2);
  EXPECT_TRUE(saves.IsPaused(2));
}

}  // namespace
}  // namespace elasticdl::master
