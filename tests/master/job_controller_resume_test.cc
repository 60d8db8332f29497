// What a restarted master goes on with.
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

// With true, the journal is shortened first.
class SuccessionTest : public JobControllerTest,
                       public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.has_pods = false;
    options_.record = [this](const v1::JournalRecord& record) {
      journal_.push_back(record);
    };
  }
  // The first master, or one that takes over from the journal.
  void Begin() {
    options_.replay = journal_;
    Start();
    const absl::Status status = controller_->Begin(now_);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Restart() {
    if (GetParam()) journal_ = controller_->StateRecords();
    output_.sent.clear();
    id_of_.clear();
    Begin();
  }
  // The worker comes back with the model and all tasks up to `last_task_id`.
  void ComeBack(ConnectionId connection, int64_t worker_id,
                int64_t last_task_id) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    hello.mutable_hello()->set_resuming(true);
    Say(connection, hello);
    if (output_.Take(connection, v1::MasterMessage::kWelcome).empty()) return;
    id_of_[connection] = worker_id;
    v1::WorkerMessage ready;
    ready.mutable_ready()->set_step(step_);
    ready.mutable_ready()->set_has_state(true);
    ready.mutable_ready()->set_last_task_id(last_task_id);
    Say(connection, ready);
    Form();
  }

  std::vector<v1::JournalRecord> journal_;
};

TEST_P(SuccessionTest, TheWorkerGoesOnWithItsTasks) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2);
  Commit(1, tasks[0], tasks[0].range().begin() + 10);
  Restart();
  EXPECT_EQ(controller_->progress().committed_records, 10);
  EXPECT_EQ(controller_->progress().step, step_);
  ComeBack(2, 0, tasks[1].task_id());
  ASSERT_FALSE(output_.worlds.empty());
  EXPECT_GT(output_.worlds.back().generation,
            output_.worlds.front().generation);
  EXPECT_FALSE(prepared_[2].cold());
  // It has them.
  EXPECT_TRUE(Tasks(2).empty());
  Commit(2, tasks[0], tasks[0].range().end());
  Commit(2, tasks[1], tasks[1].range().end());
  const auto others = TrainAll(2);
  ASSERT_EQ(others.size(), 1);
  Done(2, others[0]);
  EXPECT_TRUE(controller_->succeeding());
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_P(SuccessionTest, TasksThatDidNotArriveAreSentAgain) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Restart();
  ComeBack(2, 0, tasks[0].task_id());
  const auto again = Tasks(2);
  ASSERT_EQ(again.size(), 1);
  EXPECT_EQ(again[0].SerializeAsString(), tasks[1].SerializeAsString());
}

TEST_P(SuccessionTest, ReportsThatDidNotArriveAreSettledByTheWorld) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Restart();
  // It had trained on meanwhile.
  step_ = 2;
  totals_[0] = 20;
  ComeBack(2, 0, tasks[1].task_id());
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_EQ(controller_->progress().step, 2);
}

TEST_P(SuccessionTest, NoWorldBeforeAllMembersAreBack) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  const size_t worlds = output_.worlds.size();
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  EXPECT_EQ(output_.worlds.size(), worlds);
  ComeBack(4, 1, 100);
  ASSERT_EQ(output_.worlds.size(), worlds + 1);
  EXPECT_EQ(output_.worlds.back().members.size(), 2);
}

TEST_P(SuccessionTest, WhoDoesNotComeBackIsLostAndFenced) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  const auto own = Tasks(1);
  ASSERT_EQ(own.size(), 2);
  ASSERT_FALSE(Tasks(2).empty());
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  now_ += options_.resume_grace;
  EXPECT_LE(controller_->NextTimer(), now_);
  controller_->OnTimer(now_);
  Form();
  ASSERT_EQ(output_.worlds.back().members, std::vector<int64_t>{0});
  EXPECT_THAT(output_.lost,
              testing::ElementsAre(HasSubstr("1: did not reattach")));
  // Its data goes to the other, which still has its own.
  for (const v1::Task& task : own) Commit(3, task, task.range().end());
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  ComeBack(4, 1, 100);
  EXPECT_EQ(output_.closed[4].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(SuccessionTest, WhoIsKnownToBeDeadIsNotWaitedFor) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  EXPECT_THAT(controller_->awaited(), testing::ElementsAre(0, 1));
  ComeBack(3, 0, /*last_task_id=*/0);
  controller_->OnWorkerEnded(now_, 1, {false, "its pod is gone"});
  Form();
  EXPECT_EQ(output_.worlds.back().members, std::vector<int64_t>{0});
  EXPECT_THAT(output_.lost, testing::SizeIs(1));
}

TEST_P(SuccessionTest, WithoutTheModelItFallsBackToTheCheckpoint) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  EXPECT_EQ(controller_->progress().committed_records, 30);
  Restart();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  EXPECT_EQ(Attach(2, -1).restore_from, "version-1");
}

// It said so before the others were back.
TEST_P(SuccessionTest, WhoLeavesIsNotForgotten) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(3, leaving);
  ComeBack(4, 1, 100);
  EXPECT_EQ(output_.worlds.back().members, std::vector<int64_t>{1});
  EXPECT_EQ(output_.Take(3, v1::MasterMessage::kStop).size(), 1);
}

TEST_P(SuccessionTest, IdsAndGenerationsAreNeverUsedAgain) {
  Begin();
  EXPECT_EQ(Attach(1, -1).worker_id, 0);
  const int64_t generation = output_.worlds.back().generation;
  Restart();
  EXPECT_EQ(controller_->next_worker_id(), 1);
  ComeBack(2, 0, 100);
  EXPECT_GT(output_.worlds.back().generation, generation);
  EXPECT_EQ(Attach(3, -1).worker_id, 1);
}

TEST_P(SuccessionTest, TheLastCommitsAreToldAgain) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  const auto told = output_.committed;
  ASSERT_EQ(told.size(), 1);
  Restart();
  // The audit was cut to before them (all records say 0 bytes here); not when
  // the journal was shortened, which is done when they are in the audit.
  EXPECT_EQ(output_.committed.size(), GetParam() ? 1 : 2);
  EXPECT_EQ(output_.committed.back(), told.back());
}

TEST_P(SuccessionTest, AnOutcomeStays) {
  Begin();
  Attach(1, 0);
  controller_->Fail(now_, "no luck");
  Restart();
  EXPECT_TRUE(controller_->ending());
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_EQ(controller_->result()->message, "no luck");
}

TEST_P(SuccessionTest, AJournalOfAnotherJobIsRefused) {
  Begin();
  options_.job.set_job_name("another");
  options_.replay = journal_;
  EXPECT_EQ(
      JobController::Create(options_, output_, output_, now_).status().code(),
      absl::StatusCode::kDataLoss);
}

// The lineage, and what is saved, are known to the next master.
TEST_P(SuccessionTest, ASaveGoesOnOverARestart) {
  options_.job.set_checkpoint_dir("checkpoints");
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  const Saved under_way = on_disk_[1];
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  Restart();
  ComeBack(2, 0, tasks[1].task_id());
  EXPECT_EQ(prepared_[2].saved_step(), 1);
  ReportSave(2, under_way);
  Commit(2, tasks[1], tasks[1].range().end());
  EXPECT_TRUE(TrainAll(2).empty());
  ReportSave(2, BeginSave(2));
  EXPECT_EQ(Tasks(2).size(), 1u);
}

TEST_P(SuccessionTest, AVersionOfAnAbandonedLineageStaysUnused) {
  Begin();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  const Saved late = BeginSave(1);
  Break(1);
  id_of_.clear();
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  Publish(late);
  tasks = Tasks(2);
  Commit(2, tasks[0], tasks[0].range().end());
  Restart();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(Attach(3, -1).restore_from, "version-1");
  EXPECT_EQ(controller_->progress().committed_records, 20);
}

// Its disk was full: the workers went on unrecorded.
TEST_P(SuccessionTest, AnIncompleteJournalLeadsToTheCheckpoint) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  if (GetParam()) journal_ = controller_->StateRecords();
  const std::vector<v1::JournalRecord> until_here = journal_;
  const int64_t generation = lineage_;
  Commit(1, tasks[1], tasks[1].range().end());
  Attach(2, 1);
  journal_ = until_here;
  options_.replay_incomplete = true;
  output_.sent.clear();
  id_of_.clear();
  Begin();
  ComeBack(3, 0, tasks[1].task_id());
  EXPECT_EQ(output_.closed[3].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_EQ(Attach(4, 2).restore_from, "version-1");
  EXPECT_GT(prepared_[4].generation(), generation + 100);
  const auto others = TrainAll(4);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  ASSERT_EQ(others.size(), 1u);
}

// The master was killed between the two records, the workers after it.
TEST_P(SuccessionTest, CommitsOfAStepThatIsNotRecordedAreVoid) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  while (!journal_.back().task().has_step()) journal_.pop_back();
  journal_.pop_back();
  ASSERT_TRUE(journal_.back().task().has_committed());
  output_.sent.clear();
  id_of_.clear();
  Begin();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
}

// Both came to the worker before it could answer the first of two masters.
TEST_P(SuccessionTest, ASecondReadyBringsNoSecondTasks) {
  Begin();
  Attach(1, 0);
  ASSERT_EQ(Tasks(1).size(), 2u);
  Restart();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_state(true);
  Say(2, ready);
  Say(2, ready);
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kTask).size(), 2u);
}

// How a worker's process ended was not known yet when the master died.
TEST_P(SuccessionTest, TasksOfAWorkerThatWasLostBeforeGoBack) {
  options_.has_pods = true;
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  ASSERT_EQ(Tasks(2).size(), 2u);
  Break(2);
  Form();
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  // It must not come back with what it held.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(1);
  hello.mutable_hello()->set_resuming(true);
  Say(4, hello);
  EXPECT_TRUE(absl::IsFailedPrecondition(output_.closed[4]));
  // Not by its own exit code, which would count against its slot.
  EXPECT_THAT(output_.killed, testing::Contains(1));
}

TEST_P(SuccessionTest, ShardsAreLearntFromAWorkerThatComesBack) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Begin();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  Restart();
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_shards(true);
  *ready.mutable_ready()->add_training_shards() = MakeShard("table", 40);
  id_of_[2] = 0;
  Say(2, ready);
  Form();
  EXPECT_EQ(Tasks(2).size(), 2u);
  EXPECT_FALSE(controller_->ending());
}

// It has a stream, but hangs before it is ready: what it holds goes to others.
TEST_P(SuccessionTest, WhoIsNotReadyInTimeIsFenced) {
  options_.resume_step_grace = 2 * options_.resume_grace;
  Begin();
  Attach(1, 0);
  Restart();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  // A long step is no hang.
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(output_.closed.count(2), 0u);
  now_ += options_.resume_step_grace;
  controller_->OnTimer(now_);
  ASSERT_EQ(output_.closed.count(2), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(output_.closed[2]));
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
}

// It has a stream and loses it before it is ready: the others do not wait.
TEST_P(SuccessionTest, WhoIsLostBeforeItIsReadyIsNotWaitedFor) {
  for (const bool process_first : {false, true}) {
    journal_.clear();
    options_.has_pods = true;
    Begin();
    Attach(1, 0);
    Attach(2, 1);
    Restart();
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(1);
    hello.mutable_hello()->set_resuming(true);
    Say(4, hello);
    ComeBack(3, 0, /*last_task_id=*/0);
    EXPECT_EQ(controller_->Activity(), "waiting for the workers to come back");
    if (process_first) {
      controller_->OnWorkerEnded(now_, 1, {/*crashed=*/false, "killed"});
    } else {
      controller_->OnClosed(now_, 4, absl::UnavailableError("broken"));
    }
    EXPECT_NE(controller_->Activity(), "waiting for the workers to come back");
  }
}

// Its process may hang; it would be in the way of another.
TEST_P(SuccessionTest, TheProcessOfWhoDoesNotComeBackIsKilled) {
  options_.has_pods = true;
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
}

// Evaluations are not recorded; the next master must not give their ids to
// other tasks, or a worker's word about one is taken for the other.
TEST_P(SuccessionTest, IdsOfTasksAreNotUsedAgain) {
  Begin();
  Attach(1, 0);
  const int64_t first = Tasks(1)[0].task_id();
  for (int masters = 0; masters < 2; ++masters) Restart();
  Attach(3, 1);
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  Form();
  const auto tasks = Tasks(3);
  ASSERT_FALSE(tasks.empty());
  EXPECT_GT(tasks[0].task_id(), first + 2 * (int64_t{1} << 32));
}

TEST_P(SuccessionTest, AnIncompleteJournalWithoutAStepStartsAgain) {
  Begin();
  Attach(1, 0);
  options_.replay_incomplete = true;
  Restart();
  Attach(2, 1);
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

INSTANTIATE_TEST_SUITE_P(Journal, SuccessionTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Shortened" : "Whole";
                         });

}  // namespace
}  // namespace elasticdl::master
