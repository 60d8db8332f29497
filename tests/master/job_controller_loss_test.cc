// Which checkpoint a job falls back to when its model is lost.
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

// Rank 0 left while its save was being flushed; its report comes last.
TEST_F(JobControllerTest, ALateReportOfAnOlderSaveChangesNothing) {
  for (const std::string error : {"", "disk full"}) {
    SCOPED_TRACE(error);
    SetUp();
    output_ = Recorder();
    step_ = 0;
    totals_.clear();
    done_until_.clear();
    options_.job.set_checkpoint_dir("checkpoints");
    Start();
    Attach(1, 0);
    const auto tasks = Tasks(1);
    Commit(1, tasks[0], tasks[0].range().end());
    const Saved older = BeginSave(1);
    Commit(1, tasks[1], tasks[1].range().end());
    EXPECT_TRUE(TrainAll(1).empty());
    ReportSave(1, BeginSave(1));
    auto last = Tasks(1);
    ReportSave(1, older, error);
    ASSERT_EQ(last.size(), 1u) << "the train-end task is never granted";
    Done(1, last[0]);
    EXPECT_TRUE(controller_->succeeding());
    Break(1);
    ASSERT_TRUE(controller_->result().has_value());
    EXPECT_EQ(controller_->result()->exit_code, 0)
        << controller_->result()->message;
  }
}

// And before the train-end task is granted.
TEST_F(JobControllerTest, ALateReportDoesNotTakeTheLastOneAway) {
  options_.job.set_checkpoint_dir("checkpoints");
  options_.tasks.validation_shards = {MakeShard("valid", 10)};
  options_.tasks.final_evaluation = true;
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  const Saved older = BeginSave(1);
  Commit(1, tasks[1], tasks[1].range().end());
  auto others = TrainAll(1);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].type(), v1::EVALUATION);
  ReportSave(1, BeginSave(1));
  ReportSave(1, older);
  Done(1, others[0]);
  others = Tasks(1);
  ASSERT_EQ(others.size(), 1u) << "the job hangs";
  EXPECT_EQ(others[0].type(), v1::TRAIN_END_CALLBACK);
}

class CutBackTest : public JobControllerTest {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.tasks.training_shards = {MakeShard("train", 1000)};
    Start();
    Attach(1, 0);
  }
  void TrainSteps(ConnectionId connection, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (held_.empty()) held_ = Tasks(connection);
      ASSERT_FALSE(held_.empty());
      Commit(connection, held_.front(), held_.front().range().end());
      held_.erase(held_.begin());
    }
  }
  // The only worker dies, another one comes.
  std::string LoseAndAttach(ConnectionId old_one, ConnectionId new_one) {
    Break(old_one);
    controller_->OnWorkerEnded(now_, id_of_[old_one], {false, "signal 9"});
    id_of_.erase(old_one);
    held_.clear();
    const int64_t id = controller_->next_worker_id();
    return Attach(new_one, id).restore_from;
  }
  // A task of 20 records in each step.
  void ExpectGoodLedger() {
    EXPECT_EQ(controller_->progress().committed_records, 20 * step_);
  }
  std::vector<v1::Task> held_;
};

TEST_F(CutBackTest, AVersionThatAppearsAfterTheCutBackIsNotUsed) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 3);
  const Saved late = BeginSave(1);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-2");
  // Its writer, on another machine, did not know.
  Publish(late);
  TrainSteps(2, 1);
  EXPECT_EQ(LoseAndAttach(2, 3), "version-2");
  TrainSteps(3, 1);
  EXPECT_EQ(step_, 3);
  ExpectGoodLedger();
  // At that step again: it is still another model.
  TrainSteps(3, 3);
  EXPECT_EQ(LoseAndAttach(3, 4), "version-2");
  ExpectGoodLedger();
}

TEST_F(CutBackTest, AVersionThatIsRefusedLeadsToTheOneBefore) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  // One has a ledger of other data, one a ledger that cannot be.
  on_disk_[2].ledger.mutable_shards(0)->set_name("other");
  on_disk_[3].ledger.set_committed_records(7);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  ExpectGoodLedger();
}

// The search may take minutes; the controller does everything else meanwhile.
TEST_F(CutBackTest, WorkersComeAndGoWhileACheckpointIsLookedFor) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  held_.clear();
  ASSERT_EQ(controller_.num_queries(), 1u);
  // Two come, one of them goes again; nobody is told of a world.
  Attach(2, 1);
  Attach(3, 2);
  EXPECT_EQ(controller_->num_ready_workers(), 2);
  EXPECT_EQ(prepared_.count(2) + prepared_.count(3), 0u);
  Break(2);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  id_of_.erase(2);
  EXPECT_EQ(controller_.num_queries(), 1u) << "asked twice";
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  controller_.slow = false;
  controller_.Answer();
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(2));
  Form();
  EXPECT_EQ(prepared_[3].restore_from(), "version-2");
  TrainSteps(3, 1);
  EXPECT_EQ(step_, 3);
  ExpectGoodLedger();
}

TEST_F(CutBackTest, AJobCanBeStoppedWhileACheckpointIsLookedFor) {
  TrainSteps(1, 2);
  Checkpoint(1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  controller_->StopJob(now_, "Ctrl-C");
  EXPECT_TRUE(controller_->ending());
  ASSERT_TRUE(controller_->result().has_value());
  // The answer comes too late to matter.
  controller_.Answer();
  EXPECT_TRUE(output_.cut_backs.empty());
}

TEST_F(CutBackTest, AnotherRunsVersionIsNotUsed) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  const Saved mine = BeginSave(1);
  Publish(mine);
  on_disk_[2].run = "another";
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
}

TEST_F(CutBackTest, AReportOfAnAbandonedLineageIsNoReport) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 2);
  const Saved abandoned = BeginSave(1);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
  ReportSave(2, abandoned);
  Attach(3, controller_->next_worker_id());
  EXPECT_EQ(prepared_[3].saved_step(), 1);
}

TEST_F(CutBackTest, ACopyOfAnAbandonedLineageGetsNoLedger) {
  TrainSteps(1, 1);
  const int64_t abandoned = lineage_;
  LoseAndAttach(1, 2);
  TrainSteps(2, 1);
  v1::WorkerMessage begin;
  begin.mutable_checkpoint_begin()->set_step(step_);
  begin.mutable_checkpoint_begin()->set_lineage(abandoned);
  Say(2, begin);
  const auto replies = output_.Take(2, v1::MasterMessage::kLedger);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies[0].ledger().has_ledger());
}

// Deleted between the cut back and the next worker.
TEST_F(CutBackTest, AVersionThatVanishesLeadsToTheOneBefore) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  held_.clear();
  on_disk_.erase(2);
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  EXPECT_EQ(prepared_[2].cold_step(), 1);
  ExpectGoodLedger();
}

}  // namespace
}  // namespace elasticdl::master
