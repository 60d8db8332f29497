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

// Its manifest is good, but a worker that restored it found a wrong checksum.
class DamagedCheckpointTest : public CutBackTest {
 protected:
  // Hello, Ready; the world that it is told of.
  v1::Prepare BeReady(ConnectionId connection) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(controller_->next_worker_id());
    Say(connection, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready();
    Say(connection, ready);
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kWelcome)) {
      id_of_[connection] = message.welcome().worker_id();
    }
    return Told(connection);
  }
  v1::Prepare Told(ConnectionId connection) {
    const auto told = output_.Take(connection, v1::MasterMessage::kPrepare);
    return told.empty() ? v1::Prepare() : told.back().prepare();
  }
  // What the worker is told when it cannot restore.
  v1::Prepare Refuse(ConnectionId connection, const v1::Prepare& prepare) {
    v1::WorkerMessage failed;
    failed.mutable_world_failed()->set_generation(prepare.generation());
    failed.mutable_world_failed()->set_reason("checksum differs");
    failed.mutable_world_failed()->set_checkpoint_unusable(true);
    Say(connection, failed);
    now_ += absl::Seconds(1);
    controller_->OnTimer(now_);
    return Told(connection);
  }
  void LoseFirst() {
    Break(1);
    controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
    id_of_.erase(1);
    held_.clear();
  }
  // The worker does what it was told.
  void Follow(ConnectionId connection, const v1::Prepare& prepare) {
    prepared_[connection] = prepare;
    v1::WorkerMessage offer;
    offer.mutable_offer()->set_generation(prepare.generation());
    Say(connection, offer);
    Form();
  }
};

TEST_F(DamagedCheckpointTest, TheOnesBeforeAreTriedOneAfterTheOther) {
  for (int i = 0; i < 5; ++i) {
    TrainSteps(1, 1);
    Checkpoint(1);
  }
  TrainSteps(1, 1);
  LoseFirst();
  v1::Prepare told = BeReady(2);
  // More often than worlds may break: the worker is not to blame.
  for (int i = 5; i >= 2; --i) {
    EXPECT_EQ(told.restore_from(), absl::StrCat("version-", i));
    EXPECT_EQ(told.cold_step(), i);
    told = Refuse(2, told);
  }
  EXPECT_EQ(told.restore_from(), "version-1");
  Follow(2, told);
  EXPECT_EQ(output_.closed.count(2), 0u);
  TrainSteps(2, 1);
  EXPECT_EQ(step_, 2);
  ExpectGoodLedger();
  // Saved again, it is another one.
  Checkpoint(2);
  EXPECT_EQ(LoseAndAttach(2, 3), "version-2");
  ExpectGoodLedger();
}

TEST_F(DamagedCheckpointTest, WithoutAnyOtherTheJobBeginsAgain) {
  TrainSteps(1, 2);
  Checkpoint(1);
  LoseFirst();
  v1::Prepare told = BeReady(2);
  EXPECT_EQ(told.restore_from(), "version-2");
  told = Refuse(2, told);
  EXPECT_TRUE(told.cold());
  EXPECT_EQ(told.restore_from(), "");
  EXPECT_EQ(told.cold_step(), 0);
  Follow(2, told);
  TrainSteps(2, 1);
  ExpectGoodLedger();
}

// A disk that is not mounted at the worker, or its bad memory: that must not
// cost the job its checkpoints.
TEST_F(DamagedCheckpointTest, WhoCannotReadAWholeOneIsEvicted) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 2);
  Checkpoint(1);
  LoseFirst();
  std::vector<std::string> verified;
  controller_.store.verify = [&](const std::string& path, const auto&) {
    verified.push_back(path);
    return path == "version-4" ? absl::OkStatus()
                               : absl::DataLossError("checksum differs");
  };
  v1::Prepare told = BeReady(2);
  EXPECT_EQ(told.restore_from(), "version-4");
  Refuse(2, told);
  EXPECT_THAT(verified, testing::ElementsAre("version-4"));
  EXPECT_EQ(output_.closed.count(2), 1u);
  EXPECT_THAT(output_.messages, testing::Contains(testing::HasSubstr(
                                    "cannot read the checkpoint "
                                    "version-4, which is whole")));
  controller_->OnWorkerEnded(now_, id_of_[2], {true, "evicted"});
  told = BeReady(3);
  EXPECT_EQ(told.restore_from(), "version-4");
  Follow(3, told);
  TrainSteps(3, 1);
  EXPECT_EQ(step_, 5);
  ExpectGoodLedger();
}

// A cluster whose nodes do not mount it: relaunching would never end.
TEST_F(DamagedCheckpointTest, WhenNobodyCanReadAWholeOneTheJobFails) {
  TrainSteps(1, 2);
  Checkpoint(1);
  LoseFirst();
  controller_.store.verify = [](const std::string&, const auto&) {
    return absl::OkStatus();
  };
  ConnectionId connection = 2;
  for (int i = 0; i < 3; ++i, ++connection) {
    Refuse(connection, BeReady(connection));
    ASSERT_FALSE(controller_->ending()) << i;
    controller_->OnWorkerEnded(now_, id_of_[connection], {true, "evicted"});
  }
  Refuse(connection, BeReady(connection));
  EXPECT_TRUE(controller_->ending());
  controller_->OnWorkerEnded(now_, id_of_[connection], {true, "told to stop"});
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_THAT(controller_->result()->message,
              testing::HasSubstr("4 workers in a row could not read"));
}

// More of them than failures are allowed, and they were ready first.
TEST_F(DamagedCheckpointTest, AllWhoAreThereMayTryToReadAWholeOne) {
  TrainSteps(1, 2);
  Checkpoint(1);
  LoseFirst();
  controller_.store.verify = [](const std::string&, const auto&) {
    return absl::OkStatus();
  };
  for (ConnectionId other = 11; other <= 15; ++other) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(-1);
    Say(other, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready();
    Say(other, ready);
  }
  ConnectionId connection = 2;
  for (int i = 0; i < 5; ++i, ++connection) {
    Refuse(connection, BeReady(connection));
    ASSERT_FALSE(controller_->ending()) << i;
    controller_->OnWorkerEnded(now_, id_of_[connection], {true, "evicted"});
  }
}

// The one that was looked at is damaged: the next is taken, unseen.
TEST_F(DamagedCheckpointTest, ADamagedOneIsGivenUpWhenTheMasterHasSeenIt) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 2);
  Checkpoint(1);
  LoseFirst();
  controller_.store.verify = [](const std::string&, const auto&) {
    return absl::DataLossError("checksum differs");
  };
  v1::Prepare told = BeReady(2);
  told = Refuse(2, told);
  EXPECT_EQ(told.restore_from(), "version-2");
  EXPECT_EQ(output_.closed.count(2), 0u);
  EXPECT_THAT(
      output_.messages,
      testing::Contains(testing::HasSubstr("version-4 cannot be used")));
}

// An old report, or one of a world that restored nothing.
TEST_F(DamagedCheckpointTest, AReportOfAnotherWorldChangesNothing) {
  TrainSteps(1, 2);
  Checkpoint(1);
  v1::WorkerMessage failed;
  failed.mutable_world_failed()->set_generation(lineage_ - 1);
  failed.mutable_world_failed()->set_checkpoint_unusable(true);
  Say(1, failed);
  TrainSteps(1, 1);
  EXPECT_EQ(step_, 3);
  ExpectGoodLedger();
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
}

// The first checkpoint of a job: --checkpoint_dir_for_init.
class DamagedStartTest : public DamagedCheckpointTest {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.tasks.training_shards = {MakeShard("train", 1000)};
    options_.record = [this](const v1::JournalRecord& record) {
      journal_.push_back(record);
    };
    for (const int64_t step : {2, 4, 6}) starts_[step] = HeadAt(step);
    UseStart(starts_[6]);
    controller_.store.older_start =
        [this](int64_t below) -> absl::StatusOr<checkpoint::Head> {
      auto found = starts_.lower_bound(below);
      if (found == starts_.begin()) return absl::NotFoundError("none");
      return (--found)->second;
    };
  }
  void UseStart(const checkpoint::Head& head) {
    options_.restore_from = head.path;
    options_.restore_step = head.version;
    options_.restore_ledger = head.ledger;
  }
  // A task of 20 records in each step.
  checkpoint::Head HeadAt(int64_t step) {
    auto tasks = TaskManager::Create(options_.tasks);
    for (int64_t i = 1; i <= step; ++i) {
      const GrantResult grant = tasks->Grant(now_, 0);
      EXPECT_TRUE(tasks
                      ->Commit(now_, 0, grant.task->task_id(),
                               grant.task->range().end())
                      .ok());
      EXPECT_TRUE(tasks->SetStep(i).ok());
    }
    return {absl::StrCat("init-", step), step, {}, tasks->Snapshot()};
  }
  void Begin() {
    Start();
    ASSERT_TRUE(controller_->Begin(now_).ok());
  }

  std::map<int64_t, checkpoint::Head> starts_;
  std::vector<v1::JournalRecord> journal_;
};

TEST_F(DamagedStartTest, TheJobBeginsWithAnOlderOne) {
  Begin();
  v1::Prepare told = BeReady(1);
  EXPECT_EQ(told.restore_from(), "init-6");
  EXPECT_EQ(controller_->progress().committed_records, 120);
  told = Refuse(1, told);
  EXPECT_EQ(told.restore_from(), "init-4");
  EXPECT_EQ(told.cold_step(), 4);
  told = Refuse(1, told);
  EXPECT_EQ(told.restore_from(), "init-2");
  Follow(1, told);
  EXPECT_EQ(controller_->progress().committed_records, 40);
  TrainSteps(1, 1);
  ExpectGoodLedger();
  // All is lost: it begins with that one again.
  EXPECT_EQ(LoseAndAttach(1, 2), "init-2");
  EXPECT_EQ(prepared_[2].cold_step(), 2);
  ExpectGoodLedger();
}

TEST_F(DamagedStartTest, TheNextMasterKnows) {
  Begin();
  v1::Prepare told = Refuse(1, BeReady(1));
  EXPECT_EQ(told.restore_from(), "init-4");
  Follow(1, told);
  TrainSteps(1, 1);
  for (const bool shortened : {false, true}) {
    SCOPED_TRACE(shortened);
    if (shortened) journal_ = controller_->StateRecords();
    options_.replay = journal_;
    output_ = Recorder();
    id_of_.clear();
    Begin();
    now_ += options_.resume_grace;
    controller_->OnTimer(now_);
    EXPECT_EQ(Attach(10 + shortened, -1).restore_from, "init-4");
    EXPECT_EQ(step_, 4);
    ExpectGoodLedger();
  }
}

TEST_F(DamagedStartTest, WithoutAnOlderOneTheJobFailsAndSaysWhy) {
  starts_.clear();
  Begin();
  Refuse(1, BeReady(1));
  ASSERT_TRUE(controller_->ending());
  const auto stops = output_.Take(1, v1::MasterMessage::kStop);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].stop().exit_code(), kExitJobFailed);
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "--checkpoint_dir_for_init: checksum differs; nothing older can be "
            "used: none");
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
