#include "server_checkpoints.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using State = ServerCheckpoints::State;

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
  EXPECT_FALSE(saves.Due(9, false));
  EXPECT_TRUE(saves.Due(10, false));
  EXPECT_TRUE(saves.Due(13, false)) << "the step has passed";
  saves.BeginPause();
  saves.BeginSave(4);
  saves.EndRead(13);
  EXPECT_FALSE(saves.Due(19, false));
  EXPECT_TRUE(saves.Due(20, false));
}

TEST(ServerCheckpointsTest, TheLastStepIsDueUnlessItIsSaved) {
  ServerCheckpoints saves({0, true}, 7);
  EXPECT_FALSE(saves.Due(100, false)) << "no interval";
  EXPECT_TRUE(saves.Due(100, true));
  EXPECT_FALSE(saves.Due(7, true)) << "what the job began with";
  saves.BeginSave(1);
  saves.EndRead(100);
  EXPECT_FALSE(saves.Due(100, true)) << "it is being written";
}

TEST(ServerCheckpointsTest, IsDueAgainWhenTheWriterIsLost) {
  ServerCheckpoints saves({0, true}, 7);
  saves.BeginSave(3);
  saves.EndRead(100);
  EXPECT_EQ(saves.writer(), 3);
  saves.WriterLost();
  EXPECT_TRUE(saves.Due(100, true));
  saves.BeginSave(4);
  saves.EndRead(100);
  saves.End(3, 100);
  EXPECT_EQ(saves.writer(), 4) << "not its word";
  saves.End(4, 100);
  EXPECT_EQ(saves.writer(), -1);
  EXPECT_FALSE(saves.Due(100, true));
}

TEST(ServerCheckpointsTest, WhatCannotBeReadIsNotTriedAgain) {
  ServerCheckpoints saves({10, true}, 0);
  saves.BeginSave(3);
  saves.End(/*worker_id=*/2, 10);
  EXPECT_EQ(saves.state(), State::kSaving) << "not the one that reads";
  saves.End(3, 10);
  EXPECT_EQ(saves.state(), State::kIdle);
  EXPECT_FALSE(saves.Due(10, true));
}

TEST(ServerCheckpointsTest, NothingIsDueWithoutAPlace) {
  const ServerCheckpoints saves({10, /*wanted=*/false}, 0);
  EXPECT_FALSE(saves.Due(50, true));
}

TEST(ServerCheckpointsTest, WaitsForWhatACrashedWorkerMayHavePushedInPart) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  EXPECT_FALSE(saves.Due(10, false));
  saves.OnCommit(Committed(0, 40));
  EXPECT_FALSE(saves.Due(10, false)) << "before it";
  saves.OnCommit(Committed(60, 80));
  EXPECT_FALSE(saves.Due(10, false)) << "after it";
  saves.OnCommit(Committed(40, 50));
  EXPECT_FALSE(saves.Due(10, false)) << "half of it";
  saves.OnCommit(Committed(50, 60));
  EXPECT_TRUE(saves.Due(10, false));
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
  EXPECT_FALSE(saves.Due(10, false));
  saves.OnCommit(Committed(50, 95));
  EXPECT_FALSE(saves.has_suspects());
  EXPECT_TRUE(saves.Due(10, false));
}

TEST(ServerCheckpointsTest, TheLastOneIsSavedWhateverIsSuspect) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  EXPECT_TRUE(saves.Due(10, /*last=*/true));
}

TEST(ServerCheckpointsTest, WhatIsQuarantinedIsNotWaitedFor) {
  ServerCheckpoints saves({10, true}, 0);
  saves.AddSuspect(Range(40));
  saves.OnQuarantined(Range(40));
  EXPECT_TRUE(saves.Due(10, false));
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
  EXPECT_TRUE(saves.Due(10, false)) << "it is tried again";
  saves.BeginPause();
  EXPECT_EQ(saves.pause(), 2);
}

}  // namespace
}  // namespace elasticdl::master
