// How jobs end: when all leave, when they are stopped, with their last
// checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "master/job_controller_fixture.h"

namespace elasticdl::master {
namespace {

using testing::HasSubstr;

class LastWorldTest : public JobControllerTest {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.job.set_checkpoint_dir("checkpoints");
    options_.membership.save_last = true;
    Start();
    Attach(1, 0);
    Attach(2, 1);
    const auto tasks = Tasks(1);
    ASSERT_EQ(tasks.size(), 2u);
    Commit(1, tasks[0], tasks[0].range().end());
    // Not reported; the last world tells it.
    ++step_;
    totals_[0] += 10;
  }
  void Leave(ConnectionId connection) {
    v1::WorkerMessage leaving;
    leaving.mutable_leaving()->set_reason("SIGTERM");
    Say(connection, leaving);
  }
  void SayWorldSaved(ConnectionId connection) {
    v1::WorkerMessage saved;
    saved.mutable_saved()->set_generation(prepared_[connection].generation());
    Say(connection, saved);
  }
  size_t Stops(ConnectionId connection) {
    return output_.Take(connection, v1::MasterMessage::kStop).size();
  }
};

TEST_F(LastWorldTest, WhoIsScaledAwayIsSaidToBe) {
  controller_->NoteRemoved(1, "scaled away");
  controller_->NoteRemoved(77, "unknown");
  Leave(2);
  Form();
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: scaled away"));
}

TEST_F(LastWorldTest, AllLeaveWhenAllThatCountDo) {
  EXPECT_FALSE(controller_->AllLeaving());
  Leave(1);
  EXPECT_FALSE(controller_->AllLeaving());
  // Whoever is not ready has nothing to save.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(2);
  Say(3, hello);
  Break(2);
  EXPECT_TRUE(controller_->AllLeaving());
  // It was asked by the master.
  controller_->NoteRemoved(0, "scaled away");
  EXPECT_FALSE(controller_->AllLeaving());
}

TEST_F(LastWorldTest, SuspendedThoughAStreamStaysOpen) {
  controller_->StopJob(now_, "Slurm ends the allocation", /*suspend=*/true);
  Form();
  Checkpoint(1);
  SayWorldSaved(1);
  Break(1);
  ASSERT_TRUE(controller_->ending());
  EXPECT_FALSE(controller_->result().has_value());
  const JobResult early = controller_->ResultWithout("one did not end");
  EXPECT_EQ(early.exit_code, kExitSuspended);
  EXPECT_THAT(early.message, HasSubstr("a requeued job continues"));
  Break(2);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->ResultWithout("").exit_code, kExitSuspended);
}

TEST_F(LastWorldTest, WhenAllLeaveTheJobGoesOnWhereTheyStopped) {
  Leave(1);
  Leave(2);
  Form();
  EXPECT_TRUE(prepared_[1].last());
  EXPECT_TRUE(prepared_[1].urgent());
  EXPECT_EQ(prepared_[1].members_size(), 2);
  EXPECT_EQ(controller_->progress().committed_records, 30);
  Checkpoint(1);
  EXPECT_EQ(Stops(1) + Stops(2), 0u);
  SayWorldSaved(1);
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
  EXPECT_THAT(output_.lost,
              testing::ElementsAre("0: left (SIGTERM)", "1: left (SIGTERM)"));
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_FALSE(controller_->ending());
  Break(1);
  Break(2);
  id_of_.clear();
  EXPECT_EQ(Attach(3, 2).restore_from, "version-2");
  EXPECT_TRUE(prepared_[3].cold());
  EXPECT_EQ(prepared_[3].cold_step(), 2);
  EXPECT_FALSE(prepared_[3].last());
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(LastWorldTest, WhatIsNotSavedIsTrainedAgain) {
  Leave(1);
  Leave(2);
  Form();
  BeginSave(1);
  for (const ConnectionId connection : {1, 2}) {
    Break(connection);
    controller_->OnWorkerEnded(now_, connection - 1, {false, "signal 9"});
  }
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  id_of_.clear();
  EXPECT_EQ(Attach(3, 2).restore_from, "");
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

// Of a world that was given up before it could report.
TEST_F(LastWorldTest, ACopyOfAnUnknownStepGetsNoLedger) {
  v1::WorkerMessage begin;
  begin.mutable_checkpoint_begin()->set_step(step_);
  Say(1, begin);
  auto replies = output_.Take(1, v1::MasterMessage::kLedger);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].ledger().step(), step_);
  EXPECT_FALSE(replies[0].ledger().has_ledger());
}

TEST_F(LastWorldTest, AJobThatIsStoppedSavesFirst) {
  controller_->StopJob(now_, "enough");
  EXPECT_FALSE(controller_->ending());
  EXPECT_EQ(controller_->Activity(), "stopping and saving a checkpoint");
  EXPECT_EQ(Stops(1), 0u);
  // Too late to join.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(2);
  Say(3, hello);
  EXPECT_EQ(Stops(3), 1u);
  Form();
  EXPECT_TRUE(prepared_[1].last());
  output_.saving.clear();
  Checkpoint(1);
  EXPECT_THAT(output_.saving, testing::ElementsAre(testing::ElementsAre(0),
                                                   testing::IsEmpty()));
  EXPECT_FALSE(controller_->ending());
  SayWorldSaved(1);
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(controller_->Activity(), "stopping the workers");
  EXPECT_FALSE(controller_->succeeding());
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  Break(1);
  Break(2);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; saved checkpoints/version-2; continue with "
            "--checkpoint_dir_for_init=checkpoints");
}

// When it happens: the last checkpoint and evaluation come after it.
TEST_F(JobControllerTest, SaysThatMaxStepIsReached) {
  options_.tasks.max_step = 2;
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end());
  EXPECT_THAT(output_.messages, testing::IsEmpty());
  Commit(1, tasks[1], tasks[1].range().end());
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.messages,
              testing::ElementsAre("training stops early: max_step 2 reached"));
}

TEST_F(JobControllerTest, AStopTellsWhichStepIsTheNewestOnTheDisk) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  controller_->StopJob(now_, "enough");
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; step 2 was not saved, the newest checkpoint is "
            "checkpoints/version-1; continue with "
            "--checkpoint_dir_for_init=checkpoints");
}

TEST_F(JobControllerTest, ACheckpointBeyondTheEpochsLeavesTheRest) {
  options_.tasks.num_epochs = 3;
  auto before = TaskManager::Create(options_.tasks);
  ASSERT_TRUE(before.ok());
  // Five tasks are an epoch.
  for (int i = 0; i < 6; ++i) {
    const GrantResult grant = before->Grant(now_, 0);
    ASSERT_TRUE(grant.task.has_value());
    if (i == 5) break;
    ASSERT_TRUE(
        before
            ->Commit(now_, 0, grant.task->task_id(), grant.task->range().end())
            .ok());
  }
  options_.restore_ledger = before->Snapshot();
  options_.restore_from = "version-5";
  options_.restore_step = 5;
  Start();
  EXPECT_THAT(output_.messages, testing::IsEmpty());
  options_.tasks.num_epochs = 1;
  Start();
  EXPECT_THAT(output_.messages,
              testing::ElementsAre(
                  "the checkpoint is in epoch 2; --num_epochs=1 leaves 20 "
                  "records to train; a higher --num_epochs continues"));
}

TEST_F(JobControllerTest, AStopTellsThatNothingWasSaved) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  controller_->StopJob(now_, "enough");
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; nothing was saved: the job has no --checkpoint_dir");
}

TEST_F(JobControllerTest, AStopBeforeTheFirstStepSavesNothing) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  controller_->StopJob(now_, "enough");
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; nothing was saved: no step was trained");
}

TEST_F(LastWorldTest, TheSecondStopDoesNotWait) {
  controller_->StopJob(now_, "enough");
  controller_->StopJob(now_, "at once");
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
}

TEST_F(LastWorldTest, AStopDoesNotWaitForWorkersThatHang) {
  controller_->StopJob(now_, "enough");
  // Both answer to the end of their patience, and again and again.
  for (int i = 0; i < 10 && !controller_->ending(); ++i) {
    now_ = std::max(now_, controller_->NextTimer());
    controller_->OnTimer(now_);
  }
  EXPECT_TRUE(controller_->ending());
}

// A save may take longer than members have to enter the last world.
TEST_F(LastWorldTest, AMemberThatIsLostDuringTheLastSaveDoesNotCostTheModel) {
  controller_->StopJob(now_, "enough");
  Form();
  now_ += 2 * kStopGrace;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  controller_->OnTimer(now_);
  ASSERT_FALSE(controller_->ending());
  id_of_.erase(1);
  Form();
  ASSERT_FALSE(controller_->ending());
  Checkpoint(2);
  SayWorldSaved(2);
  Break(2);
  controller_->OnWorkerEnded(now_, 1, {false, "told to leave"});
  ASSERT_TRUE(controller_->ending());
  EXPECT_THAT(controller_->result()->message,
              testing::HasSubstr("enough; saved"));
}

// One that has been given nothing yet, while bytes are on their way to it.
TEST_F(LastWorldTest, AStopWaitsWhileMembersAreGivenTheModel) {
  controller_->StopJob(now_, "enough");
  std::map<ConnectionId, v1::Prepare> last;
  for (const ConnectionId connection : {1, 2}) {
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kPrepare)) {
      last[connection] = message.prepare();
    }
    ASSERT_TRUE(last[connection].last());
    v1::WorkerMessage offer;
    offer.mutable_offer()->set_generation(last[connection].generation());
    Say(connection, offer);
  }
  for (const ConnectionId connection : {1, 2}) {
    v1::WorkerMessage connected;
    connected.mutable_connected()->set_generation(
        last[connection].generation());
    Say(connection, connected);
  }
  const auto tell = [&](ConnectionId connection) {
    v1::WorkerMessage loading;
    loading.mutable_loading()->set_generation(last[connection].generation());
    loading.mutable_loading()->set_stage(v1::Loading::MOVING);
    Say(connection, loading);
  };
  const absl::Time end = now_ + 3 * kStopGrace;
  while (now_ < end) {
    tell(1);
    tell(2);
    now_ += absl::Seconds(1);
    controller_->OnTimer(now_);
    ASSERT_FALSE(controller_->ending());
  }
}

TEST_F(LastWorldTest, AStopEndsWithTheLastWorker) {
  controller_->StopJob(now_, "enough");
  Form();
  for (const ConnectionId connection : {1, 2}) {
    EXPECT_FALSE(controller_->ending());
    Break(connection);
    controller_->OnWorkerEnded(now_, connection - 1, {false, "signal 9"});
  }
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(controller_->result()->message, "enough; nothing was saved");
}

// The evaluation goes on with those who come, who must not train meanwhile.
TEST_F(JobControllerTest, AColdWorldWaitsForAnEvaluationThatHasBegun) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.evaluation.evaluation_steps = 1;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  Start();
  Attach(1, 0);
  EXPECT_FALSE(prepared_[1].evaluating());
  Commit(1, Tasks(1)[0], 20);
  Checkpoint(1);
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.clear();
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  EXPECT_TRUE(prepared_[2].evaluating());
  Say(2, due);
  for (int round = 0; round < 2; ++round) {
    for (const v1::Task& task : Tasks(2)) {
      if (task.type() == v1::EVALUATION) Done(2, task, 3);
    }
  }
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].records, 30);
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kEvaluationDone).size(), 1u);
}

TEST_F(JobControllerTest, ShardsOfTheModelsReaderReplaceUnreadableData) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Start();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_shards(true);
  *ready.mutable_ready()->add_training_shards() = MakeShard("table", 40);
  id_of_[1] = 0;
  Say(1, ready);
  Form();
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].range().shard(), "table");
}

TEST_F(JobControllerTest, UnreadableDataFailsWhenTheModelHasNoReader) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Start();
  Attach(1, 0);
  EXPECT_TRUE(controller_->ending());
  Break(1);
  EXPECT_THAT(controller_->result()->message, HasSubstr("no such folder"));
}

TEST_F(JobControllerTest, FailedLastCheckpointFailsTheJob) {
  Start();
  Attach(1, 0);
  const auto last = TrainAll(1);
  const Saved last_save = BeginSave(1);
  Done(1, last.at(0));
  ReportSave(1, last_save, "disk full");
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_THAT(controller_->result()->message, HasSubstr("disk full"));
}

// Two workers save the last step, and the one that fails is heard first.
TEST_F(JobControllerTest, AGoodLastCheckpointCountsAfterAFailedOne) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  EXPECT_TRUE(TrainAll(1).empty());
  const Saved failed = BeginSave(1);
  const Saved good = BeginSave(1);
  ReportSave(1, failed, "disk full");
  Done(1, Tasks(1).at(0));
  ReportSave(1, good);
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, 0)
      << controller_->result()->message;
}

}  // namespace
}  // namespace elasticdl::master
