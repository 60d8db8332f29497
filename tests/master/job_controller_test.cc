// Tasks, worlds, evaluations and blame, as the controller decides about them.
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

TEST_F(JobControllerTest, TrainsAllThenExportsThenStops) {
  Start();
  EXPECT_EQ(Attach(1, 0).restore_from, "");
  // Whoever is about to do a round with others must not hear it before them.
  EXPECT_TRUE(TrainData(1).empty());
  EXPECT_TRUE(output_.Take(1, v1::MasterMessage::kTrainingDone).empty());
  const auto last = TrainAll(1);
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kTrainingDone).size(), 1u);
  SayIdle(1);
  EXPECT_TRUE(output_.Take(1, v1::MasterMessage::kTrainingDone).empty());
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].type(), v1::TRAIN_END_CALLBACK);
  EXPECT_FALSE(controller_->ending());
  Done(1, last[0]);
  EXPECT_TRUE(controller_->succeeding());
  const auto stops = output_.Take(1, v1::MasterMessage::kStop);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].stop().exit_code(), 0);
  EXPECT_FALSE(controller_->result().has_value()) << "a worker is still there";
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->exit_code, 0);
  int64_t records = 0;
  for (const auto& [step, n] : output_.committed) records += n;
  EXPECT_EQ(records, 100);
  EXPECT_TRUE(output_.lost.empty());
}

TEST_F(JobControllerTest, GrantsOneTaskInUseAndOneAhead) {
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end() - 10);
  EXPECT_TRUE(Tasks(1).empty());
  Commit(1, tasks[0], tasks[0].range().end());
  EXPECT_EQ(Tasks(1).size(), 1u);
}

TEST_F(JobControllerTest, QuickTasksAreHandedOutFurtherAhead) {
  options_.tasks.training_shards = {MakeShard("train", 2000)};
  Start();
  Attach(1, 0);
  std::vector<v1::Task> held = Tasks(1);
  ASSERT_EQ(held.size(), 2u);
  const auto next = [&] {
    Commit(1, held.front(), held.front().range().end());
    held.erase(held.begin());
    const std::vector<v1::Task> more = Tasks(1);
    held.insert(held.end(), more.begin(), more.end());
    return more.size();
  };
  // A task in a millisecond.
  next();
  EXPECT_EQ(held.size(), 16u);
  // Ten seconds for each: nothing more until there is one in use and one ahead.
  for (int i = 0; i < 14; ++i) {
    now_ += absl::Seconds(10);
    EXPECT_EQ(next(), 0u);
  }
  now_ += absl::Seconds(10);
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(held.size(), 2u);
}

TEST_F(JobControllerTest, QuickTasksAreNotHoardedAtTheEnd) {
  options_.tasks.training_shards = {MakeShard("train", 2000)};
  Start();
  Attach(1, 0);
  std::vector<v1::Task> held = Tasks(1);
  size_t left = 100 - held.size();
  size_t most = 0;
  while (left > 0) {
    Commit(1, held.front(), held.front().range().end());
    held.erase(held.begin());
    const std::vector<v1::Task> more = Tasks(1);
    held.insert(held.end(), more.begin(), more.end());
    if (!more.empty()) {
      EXPECT_LE(held.size(), std::max<size_t>(2, left / 2));
    }
    left -= more.size();
    most = std::max(most, held.size());
  }
  EXPECT_EQ(most, 16u);
  EXPECT_EQ(held.size(), 2u);
}

TEST_F(JobControllerTest, GrantsEnoughForTheGlobalBatch) {
  options_.job.set_global_batch_size(60);
  Start();
  Attach(1, 0);
  // Five of 20 records are all there are.
  EXPECT_EQ(Tasks(1).size(), 5u);
}

TEST_F(JobControllerTest, WhoLeavesHearsThatThereIsNoMore) {
  options_.job.set_global_batch_size(20);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Tasks(2);
  output_.Take(2, v1::MasterMessage::kNoMoreTasks);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(2, leaving);
  v1::WorkerMessage starving;
  starving.mutable_starving();
  Say(2, starving);
  EXPECT_TRUE(Tasks(2).empty());
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kNoMoreTasks).size(), 1u);
}

TEST_F(JobControllerTest, GrantsInTurn) {
  options_.tasks.num_minibatches_per_task = 1;
  options_.job.set_global_batch_size(100);
  options_.membership.min_workers = 2;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  EXPECT_EQ(Tasks(1).size(), 5u);
  EXPECT_EQ(Tasks(2).size(), 5u);
}

TEST_F(JobControllerTest, LostJoinerIsReportedAtOnce) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_id(1);
  Say(2, message);
  message.mutable_ready();
  Say(2, message);
  Break(2);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: signal 9"));
}

TEST_F(JobControllerTest, SecondWorkerOfALocalJobStandsBy) {
  options_.membership.max_workers = 1;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  EXPECT_TRUE(Tasks(2).empty());
  ASSERT_EQ(output_.worlds.size(), 1u);
  // It takes over from the first, and from its checkpoint.
  Commit(1, Tasks(1)[0], 20);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  Form();
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(1));
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, LostWorkerCutsBackToTheStartWithoutACheckpoint) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("0: signal 9"));
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  step_ = 0;
  EXPECT_EQ(Attach(2, 1).restore_from, "");
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, LostWorkerCutsBackToTheNewestCheckpointOnDisk) {
  Start();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  // A second one was asked for, but its worker died in the save.
  BeginSave(1);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {true, "exit code 1"});
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  step_ = 1;
  EXPECT_EQ(Attach(2, 1, 1).restore_from, "version-1");
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

// The save was complete, only the word of it was lost: nothing is retrained.
TEST_F(JobControllerTest, UsesACheckpointWhoseReportWasLost) {
  Start();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Publish(BeginSave(1));
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  EXPECT_TRUE(output_.cut_backs.empty());
  EXPECT_EQ(Attach(2, 1, 1).restore_from, "version-1");
}

TEST_F(JobControllerTest, UnexplainedLossIsKilledAfterTheGrace) {
  Start();
  Attach(1, 0);
  Break(1);
  EXPECT_TRUE(output_.lost.empty()) << "the pod may still say why";
  EXPECT_EQ(controller_->NextTimer(), now_ + options_.end_grace);
  now_ += options_.end_grace;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
  EXPECT_EQ(output_.lost.size(), 1u);
}

TEST_F(JobControllerTest, SameWorkerComingBackFencesItsOldStream) {
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Attach(2, 0);
  EXPECT_EQ(output_.closed[1].code(), absl::StatusCode::kFailedPrecondition);
  // What the old stream still says changes nothing.
  Commit(1, tasks[0], 10);
  EXPECT_TRUE(output_.committed.empty());
  EXPECT_EQ(id_of_[2], 1) << "a new process is a new worker";
  EXPECT_EQ(Tasks(2).size(), 2u);
}

TEST_F(JobControllerTest, SurvivorsKeepTheModelAndTheDeadMembersRestIsRedone) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  ASSERT_EQ(output_.worlds.back().members.size(), 2u);
  const auto first = Tasks(1);
  const auto second = Tasks(2);
  ASSERT_EQ(second.size(), 2u);
  Commit(1, first[0], first[0].range().end());
  // Worker 1 trained ten records in a step that only the survivor knows of.
  totals_[1] = 10;
  ++step_;
  Break(2);
  EXPECT_TRUE(output_.lost.empty()) << "its pod has not said why";
  Form();
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(0));
  EXPECT_EQ(controller_->progress().committed_records, 30);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: signal 9"));
  EXPECT_TRUE(output_.cut_backs.empty());
  // The rest of its tasks, from that very record.
  done_until_.clear();
  for (const v1::Task& task : first) {
    done_until_[task.task_id()] = task.range().begin();
  }
  done_until_[first[0].task_id()] = first[0].range().end();
  Commit(1, first[1], first[1].range().end());
  TrainAll(1);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, StaleReportsOfAnEvictedMemberAreRefused) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto tasks = Tasks(1);
  const int64_t generation = prepared_[1].generation();
  Attach(3, 2);
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_generation(generation);
  progress.set_step(5);
  progress.add_totals()->set_records(10);
  Say(1, message);
  EXPECT_TRUE(output_.committed.empty());
}

TEST_F(JobControllerTest, SaysWhatGoesOnBeforeDataIsWorkedOn) {
  options_.membership.min_workers = 2;
  Start();
  EXPECT_EQ(controller_->Activity(), "starting workers");
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  EXPECT_EQ(controller_->Activity(),
            "compiling or loading the model in 1 worker");
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(1, ready);
  EXPECT_EQ(controller_->Activity(),
            "waiting for more workers, 1 of at least 2 are ready");
  hello.mutable_hello()->set_worker_id(1);
  Say(2, hello);
  Say(2, ready);
  EXPECT_EQ(controller_->Activity(), "connecting 2 workers");
  v1::WorkerMessage loading;
  loading.mutable_loading()->set_generation(1);
  Say(1, loading);
  EXPECT_EQ(controller_->Activity(), "loading the model's state");
  loading.mutable_loading()->set_bytes(1500000);
  loading.mutable_loading()->set_total_bytes(4000000);
  Say(1, loading);
  EXPECT_EQ(controller_->Activity(),
            "loading the model's state, 1.5 of 4.0 MB");
  loading.mutable_loading()->set_stage(v1::Loading::MOVING);
  Say(2, loading);
  EXPECT_EQ(controller_->Activity(),
            "passing on the model's state, 1.5 of 4.0 MB");
  id_of_ = {{1, 0}, {2, 1}};
  Form();
  EXPECT_EQ(controller_->Activity(), "");
}

// To look at a checkpoint of some GB takes longer than a member may take for
// its answer.
TEST_F(JobControllerTest, MembersAreNotLateBecauseTheSearchIsSlow) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  Checkpoint(1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {});
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(1);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(2, ready);
  now_ += absl::Minutes(1);
  controller_->OnTimer(now_);
  EXPECT_TRUE(output_.killed.empty());
  EXPECT_TRUE(output_.Take(2, v1::MasterMessage::kPrepare).empty());
  controller_.Answer();
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kPrepare).size(), 1u);
  controller_->OnTimer(now_);
  EXPECT_TRUE(output_.killed.empty());
  // From now on it is.
  now_ += options_.membership.prepare_timeout;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
}

// Its step is over and its task goes on when the joiner has the state.
TEST_F(JobControllerTest, WhoPassesItsStateOnIsNotSilentOnItsTask) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_id(1);
  Say(2, message);
  message.mutable_ready();
  Say(2, message);
  for (const ConnectionId connection : {1, 2}) {
    message.mutable_offer()->set_generation(2);
    Say(connection, message);
  }
  for (const ConnectionId connection : {1, 2}) {
    message.mutable_connected()->set_generation(2);
    Say(connection, message);
  }
  message.mutable_loading()->set_generation(2);
  message.mutable_loading()->set_stage(v1::Loading::LOADED);
  Say(1, message);
  Say(2, message);
  message.mutable_loading()->set_stage(v1::Loading::MOVING);
  for (int i = 0; i < 30; ++i) {
    Say(2, message);
    now_ += absl::Minutes(1);
    controller_->OnTimer(now_);
    ASSERT_TRUE(output_.killed.empty()) << i;
  }
}

TEST_F(JobControllerTest, AMemberThatLoadsIsNotLate) {
  Start();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(1, ready);
  v1::WorkerMessage offer;
  offer.mutable_offer()->set_generation(1);
  Say(1, offer);
  v1::WorkerMessage connected;
  connected.mutable_connected()->set_generation(1);
  Say(1, connected);
  v1::WorkerMessage loading;
  loading.mutable_loading()->set_generation(1);
  for (int i = 0; i < 30; ++i) {
    loading.mutable_loading()->set_bytes(i);
    Say(1, loading);
    now_ += absl::Minutes(1);
    controller_->OnTimer(now_);
    ASSERT_TRUE(output_.killed.empty());
  }
  now_ += options_.membership.load_timeout;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
}

TEST_F(JobControllerTest, IdleMembersAreWokenWhenThereIsData) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage idle;
  idle.mutable_idle()->set_generation(prepared_[1].generation());
  Say(1, idle);
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kWake).size(), 1u)
      << "its tasks are on their way";
}

TEST_F(JobControllerTest, WrongTotalsFailTheJob) {
  Start();
  Attach(1, 0);
  totals_[0] = 1000;
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().begin());
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerTest, AMemberThatHangsIsNamedAndKilled) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  v1::WorkerMessage stuck;
  stuck.mutable_stuck()->set_where("feed (step 3)");
  stuck.mutable_stuck()->set_seconds(31);
  Say(2, stuck);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
  EXPECT_EQ(output_.closed[2].code(), absl::StatusCode::kFailedPrecondition);
  Form();
  ASSERT_EQ(output_.lost.size(), 1u);
  EXPECT_THAT(output_.lost[0], HasSubstr("stuck in feed (step 3)"));
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(0));
}

TEST_F(JobControllerTest, EvaluatesAtTheStepThatAsksAndLetsTheWorkerGoOn) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.evaluation.evaluation_steps = 1;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  EXPECT_EQ(Tasks(1).size(), 1u);
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  for (const v1::Task& task : tasks) {
    EXPECT_EQ(task.type(), v1::EVALUATION);
    EXPECT_EQ(task.model_version(), 1);
    Done(1, task, 3);
  }
  for (const v1::Task& task : Tasks(1)) {
    if (task.type() == v1::EVALUATION) Done(1, task, 3);
  }
  const auto done = output_.Take(1, v1::MasterMessage::kEvaluationDone);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].evaluation_done().step(), 1);
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].records, 30);
  EXPECT_EQ(output_.done_records, 30);
  // Told when it began and when it was over.
  using Told = std::pair<int64_t, std::vector<int64_t>>;
  EXPECT_THAT(output_.evaluating,
              testing::ElementsAre(Told{1, {0}}, Told{1, {}}));
}

TEST_F(JobControllerTest, EvaluationOnlyJobNeedsNoTraining) {
  options_.job.set_job_type(v1::EVALUATION_ONLY);
  options_.tasks.training_shards.clear();
  options_.tasks.train_end_task = false;
  options_.tasks.final_evaluation = true;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  options_.restore_from = "version-5";
  options_.restore_step = 5;
  Start();
  // Several workers share it.
  EXPECT_EQ(Attach(1, 0, 5).restore_from, "version-5");
  Attach(2, 1, 5);
  for (int round = 0; round < 3; ++round) {
    for (const ConnectionId connection : {1, 2}) {
      for (const v1::Task& task : Tasks(connection)) Done(connection, task, 1);
    }
  }
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].version, 5);
  EXPECT_TRUE(controller_->succeeding());
}

TEST_F(JobControllerTest, FatalErrorFailsTheJobWithTheWorkersWords) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage fatal;
  fatal.mutable_fatal()->set_message("feed threw on record 7");
  Say(1, fatal);
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kStop)[0].stop().exit_code(),
            kExitJobFailed);
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_THAT(controller_->result()->message,
              HasSubstr("feed threw on record 7"));
}

TEST_F(JobControllerTest, CrashingTaskIsSetAsideAndTheExitCodeSaysSo) {
  options_.tasks.task_max_failures = 2;
  Start();
  ConnectionId connection = 0;
  // The first crash may be the fault of either task; then they come one by one.
  for (const size_t tasks : {2u, 1u, 1u}) {
    EXPECT_EQ(output_.quarantined, 0);
    ++connection;
    Attach(connection, connection);
    ASSERT_EQ(Tasks(connection).size(), tasks);
    Break(connection);
    controller_->OnWorkerEnded(now_, connection, {true, "signal 11"});
    EXPECT_TRUE(controller_->BlamedOnOther(connection));
  }
  EXPECT_EQ(output_.quarantined, 1);
  ++connection;
  Attach(connection, connection);
  while (controller_->progress().committed_records < 80) {
    for (const v1::Task& task : Tasks(connection)) {
      Commit(connection, task, task.range().end());
    }
  }
  SayIdle(connection);
  Done(connection, Tasks(connection).at(0));
  Break(connection);
  EXPECT_EQ(controller_->result()->exit_code, kExitRecordsQuarantined);
}

TEST_F(JobControllerTest, CrashingEverywhereIsTheWorkersFaultInTheEnd) {
  options_.tasks.task_max_failures = 2;
  Start();
  int blamed = 0;
  for (int crash = 0; crash < 5; ++crash) {
    Attach(crash + 1, crash);
    Break(crash + 1);
    controller_->OnWorkerEnded(now_, crash, {true, "signal 11"});
    blamed += controller_->BlamedOnOther(crash) ? 1 : 0;
  }
  EXPECT_EQ(blamed, 3);
}

TEST_F(JobControllerTest, CrashesWithoutACulpritAreTheWorkersFaultInTheEnd) {
  options_.tasks.training_shards = {MakeShard("train", 1000)};
  options_.tasks.task_max_failures = 2;
  Start();
  // Each worker trains a little more than the one before it.
  int blamed = 0;
  for (int crash = 0; crash < 10; ++crash) {
    Attach(crash + 1, crash);
    step_ = 0;
    for (int i = 0; i <= crash; ++i) {
      const auto tasks = Tasks(crash + 1);
      ASSERT_FALSE(tasks.empty());
      Commit(crash + 1, tasks[0], tasks[0].range().end());
    }
    Break(crash + 1);
    controller_->OnWorkerEnded(now_, crash, {true, "signal 11"});
    blamed += controller_->BlamedOnOther(crash) ? 1 : 0;
  }
  EXPECT_EQ(blamed, 6);
  EXPECT_EQ(output_.quarantined, 0);
}

TEST_F(JobControllerTest, TheJobWaitsForItsLastCheckpoint) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  EXPECT_TRUE(TrainAll(1).empty()) << "train end before the model is saved";
  ReportSave(1, BeginSave(1));
  const auto last = Tasks(1);
  ASSERT_EQ(last.size(), 1u);
  Done(1, last[0]);
  EXPECT_TRUE(controller_->succeeding());
}

TEST_F(JobControllerTest, AnEvaluationOfALostModelDoesNotBegin) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.tasks.validation_shards = {MakeShard("test", 10)};
  options_.evaluation.evaluation_steps = 1;
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving();
  Say(1, leaving);
  ASSERT_THAT(output_.cut_backs, testing::ElementsAre(0));
  // Said before it was let go; the job has begun again from step 0.
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  EXPECT_FALSE(controller_->evaluation_progress().has_value());
}

TEST_F(JobControllerTest, LeavingIsNoFailure) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  ASSERT_EQ(output_.lost.size(), 1u);
  EXPECT_THAT(output_.lost[0], HasSubstr("0: left"));
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kStop)[0].stop().exit_code(), 0);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "exit code 0"});
  EXPECT_EQ(output_.lost.size(), 1u);
  EXPECT_FALSE(controller_->BlamedOnOther(0));
}

}  // namespace
}  // namespace elasticdl::master
