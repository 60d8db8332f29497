// Training with parameter servers: commits without worlds, versions, losses.
#include "master/job_controller_ps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job_controller.h"

namespace elasticdl::master {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(JobControllerPsTest, CommitsWhatAWorkerHasPushed) {
  options_.job.set_use_async(true);
  Start();
  Attach(1, 0);
  ASSERT_THAT(Tasks(1), SizeIs(testing::Ge(2)));
  Pushed(1, 0, 30);
  EXPECT_THAT(output_.committed,
              ElementsAre(std::make_pair(0, 20), std::make_pair(20, 30)));
  EXPECT_EQ(controller_->progress().step, 3);
  Pushed(1, 0, 30);
  EXPECT_EQ(controller_->progress().step, 3) << "the same report again";
}

TEST_F(JobControllerPsTest, ALostWorkersRestGoesToAnotherAtTheSameBounds) {
  options_.job.set_use_async(true);
  Start();
  Attach(1, 0);
  Pushed(1, 0, 10);
  Close(1);
  Attach(2, 1);
  const auto tasks = Tasks(2);
  ASSERT_FALSE(tasks.empty());
  EXPECT_EQ(tasks[0].range().begin(), 10);
  EXPECT_EQ(tasks[0].range().end(), 20);
}

// Its disk hangs, and with it all workers that push to it.
TEST_F(JobControllerPsTest, WorkersAreNotBlamedForAServerThatIsStuck) {
  options_.job.set_use_async(true);
  options_.tasks.task_timeout = absl::Seconds(60);
  Start();
  Attach(1, 0);
  ASSERT_FALSE(Tasks(1).empty());
  Pushed(1, 0, 10);
  const auto pass = [this](absl::Duration time) {
    const absl::Time end = now_ + time;
    for (;;) {
      const absl::Time next = std::max(now_, controller_->NextTimer());
      if (next > end) break;
      now_ = next;
      controller_->OnTimer(now_);
    }
    now_ = end;
  };
  controller_->OnServerTelemetry(now_, 1, {});
  pass(absl::Seconds(10));
  EXPECT_THAT(output_.messages, IsEmpty());
  pass(absl::Hours(1));
  EXPECT_THAT(output_.messages,
              ElementsAre(testing::HasSubstr("parameter server 1 answers, but "
                                             "has done nothing for 15s")));
  EXPECT_TRUE(controller_->IsAttached(0)) << "not evicted";
  controller_->OnServerTelemetry(now_, 1, {});
  EXPECT_THAT(output_.messages.back(),
              testing::HasSubstr("parameter server 1 goes on after 1h"));
  // From here on the worker is to blame.
  for (int i = 0; i < 70; ++i) {
    controller_->OnServerTelemetry(now_, 1, {});
    pass(absl::Seconds(1));
  }
  EXPECT_FALSE(controller_->IsAttached(0));
}

TEST_F(JobControllerPsTest, ALeavingWorkerIsReleasedAtOnce) {
  options_.job.set_use_async(true);
  Start();
  Attach(1, 0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kStop), SizeIs(1));
}

TEST_F(JobControllerPsTest, EvaluatesWhileOthersTrain) {
  options_.job.set_use_async(true);
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  v1::LedgerShard shard;
  shard.set_name("test");
  shard.set_end(10);
  options_.tasks.validation_shards = {shard};
  options_.evaluation.evaluation_steps = 2;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  EXPECT_THAT(Tasks(1, v1::EVALUATION), IsEmpty());
  Pushed(1, 0, 30);
  auto evaluation = Tasks(1, v1::EVALUATION);
  const ConnectionId evaluator = evaluation.empty() ? 2 : 1;
  if (evaluation.empty()) evaluation = Tasks(2, v1::EVALUATION);
  ASSERT_THAT(evaluation, SizeIs(1));
  v1::WorkerMessage done;
  done.mutable_task_done()->set_task_id(evaluation[0].task_id());
  done.mutable_task_done()->set_records(10);
  v1::MetricSums& sums = *done.mutable_task_done()->add_metrics();
  sums.set_name("accuracy");
  sums.set_kind("mean");
  sums.add_sums(9);
  sums.add_sums(10);
  Say(evaluator, done);
  EXPECT_THAT(output_.evaluated, ElementsAre(3));
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kEvaluationDone), SizeIs(1));
}

TEST_F(JobControllerPsTest, AVersionIsTheSameOnAllServers) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto first = Tasks(1);
  const auto second = Tasks(2);
  Stage(1, first[0], first[0].range().begin(), 0);
  EXPECT_THAT(output_.to_servers, IsEmpty());
  Stage(2, second[0], second[0].range().begin(), 0);
  ASSERT_THAT(output_.to_servers[0], SizeIs(1));
  ASSERT_THAT(output_.to_servers[1], SizeIs(1));
  EXPECT_EQ(output_.to_servers[0][0].SerializeAsString(),
            output_.to_servers[1][0].SerializeAsString());
  EXPECT_EQ(output_.to_servers[0][0].commit().pushes_size(), 2);
  Applied(0, 1);
  EXPECT_THAT(Results(1), IsEmpty()) << "server 1 does not have it yet";
  Applied(1, 1);
  EXPECT_THAT(Results(1), ElementsAre(1));
  EXPECT_THAT(Results(2), ElementsAre(1));
  EXPECT_EQ(controller_->progress().step, 1);
}

TEST_F(JobControllerPsTest, AServerThatComesBackHearsTheOpenVersionAgain) {
  options_.job.set_grads_to_wait(1);
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Stage(1, tasks[0], 0, 0);
  Applied(0, 1);
  output_.to_servers.clear();
  controller_->OnServerAttached(now_, 1, 0);
  ASSERT_THAT(output_.to_servers[1], SizeIs(1));
  EXPECT_EQ(output_.to_servers[1][0].commit().version(), 1);
  Applied(1, 1);
  EXPECT_THAT(Results(1), ElementsAre(1));
}

TEST_F(JobControllerPsTest, ARoundDoesNotWaitForALostWorker) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto first = Tasks(1);
  Stage(1, first[0], first[0].range().begin(), 0);
  EXPECT_THAT(output_.to_servers, IsEmpty());
  Close(2);
  EXPECT_THAT(output_.to_servers[0], SizeIs(1));
}

TEST_F(JobControllerPsTest, AnOldGradientIsComputedAgainWhenAllHaveTheNewest) {
  options_.job.set_grads_to_wait(1);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto first = Tasks(1);
  const auto second = Tasks(2);
  Stage(1, first[0], first[0].range().begin(), 0);
  Stage(2, second[0], second[0].range().begin(), 0);
  EXPECT_THAT(Results(2), IsEmpty());
  Applied(0, 1);
  Applied(1, 1);
  EXPECT_THAT(Results(2), ElementsAre(0));
  Stage(2, second[0], second[0].range().begin(), 1);
  Applied(0, 2);
  Applied(1, 2);
  EXPECT_THAT(Results(2), ElementsAre(2));
}

TEST_F(JobControllerPsTest, AServerThatCannotApplyAVersionFailsTheJob) {
  options_.job.set_grads_to_wait(1);
  Start();
  Attach(1, 0);
  Stage(1, Tasks(1)[0], 0, 0);
  v1::WorkerMessage message;
  message.mutable_server_committed()->set_version(1);
  message.mutable_server_committed()->set_error("not staged");
  controller_->OnServerMessage(now_, 0, message);
  EXPECT_TRUE(controller_->ending());
  EXPECT_FALSE(controller_->succeeding());
}

TEST_F(JobControllerPsTest, AServerThatHasLostItsLogFailsTheJob) {
  options_.job.set_use_async(true);
  Start();
  // Before there is anything to lose, all are empty.
  controller_->OnServerAttached(now_, 0, 0);
  controller_->OnServerAttached(now_, 1, 0);
  Attach(1, 0);
  controller_->OnServerDetached(1);
  controller_->OnServerAttached(now_, 1, 0);
  EXPECT_FALSE(controller_->ending());
  Pushed(1, 0, 10);
  controller_->OnServerDetached(0);
  controller_->OnServerAttached(now_, 0, 1);
  EXPECT_FALSE(controller_->ending());
  controller_->OnServerDetached(1);
  controller_->OnServerAttached(now_, 1, 0);
  EXPECT_TRUE(controller_->ending());
  EXPECT_FALSE(controller_->succeeding());
  Close(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_THAT(
      controller_->result()->message,
      AllOf(testing::HasSubstr("parameter server 1 came back with version 0"),
            testing::HasSubstr("--ps_log")));
}

TEST_F(JobControllerPsTest, AServerMayComeBackBeforeItsFirstVersion) {
  options_.job.set_grads_to_wait(1);
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Stage(1, tasks[0], 0, 0);
  ASSERT_EQ(controller_->progress().step, 1);
  Applied(0, 1);
  output_.to_servers.clear();
  controller_->OnServerDetached(1);
  controller_->OnServerAttached(now_, 1, 0);
  EXPECT_FALSE(controller_->ending()) << "the gradient is in its log";
  EXPECT_THAT(output_.to_servers[1], SizeIs(1));
  Applied(1, 1);
  controller_->OnServerDetached(1);
  controller_->OnServerAttached(now_, 1, 0);
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerPsTest, AServerMustHaveWhatItAcknowledged) {
  options_.job.set_use_async(true);
  Start();
  controller_->OnServerAttached(now_, 0, 0);
  controller_->OnServerAttached(now_, 1, 0);
  Attach(1, 0);
  Pushed(1, 0, 30);
  controller_->OnServerDetached(1);
  // It comes back with more than is reported.
  controller_->OnServerAttached(now_, 1, 4);
  EXPECT_FALSE(controller_->ending());
  controller_->OnServerDetached(0);
  controller_->OnServerAttached(now_, 0, 2);
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerPsTest, NobodyIsLateWhileAServerIsAway) {
  options_.job.set_use_async(true);
  options_.tasks.task_timeout = absl::Seconds(10);
  Start();
  controller_->OnServerAttached(now_, 0, 0);
  Attach(1, 0);
  EXPECT_LT(controller_->NextTimer(), absl::InfiniteFuture());
  controller_->OnServerDetached(0);
  EXPECT_EQ(controller_->NextTimer(), absl::InfiniteFuture());
  now_ += absl::Minutes(30);
  controller_->OnTimer(now_);
  controller_->OnServerAttached(now_, 0, 0);
  controller_->OnTimer(now_ + absl::Seconds(9));
  EXPECT_THAT(output_.killed, IsEmpty());
  controller_->OnTimer(now_ + absl::Seconds(11));
  EXPECT_THAT(output_.killed, ElementsAre(0));
}

// Only the one that hangs is evicted, not those who wait for it.
TEST_F(JobControllerPsTest, WhoWaitsForAVersionIsNotLate) {
  options_.tasks.task_timeout = absl::Seconds(10);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto first = Tasks(1);
  Stage(1, first[0], first[0].range().begin(), 0);
  now_ = controller_->NextTimer() + absl::Seconds(1);
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, ElementsAre(1));
  EXPECT_GT(controller_->NextTimer(), now_);
}

// Versions of the others say nothing about a worker.
TEST_F(JobControllerPsTest, AWorkerIsLateAlthoughOthersTrain) {
  options_.job.set_grads_to_wait(1);
  options_.tasks.task_timeout = absl::Seconds(10);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto tasks = Tasks(1);
  now_ += absl::Seconds(6);
  Stage(1, tasks[0], tasks[0].range().begin(), 0);
  Applied(0, 1);
  Applied(1, 1);
  now_ += absl::Seconds(6);
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, ElementsAre(1));
}

TEST_F(JobControllerPsTest, WhatAReleasedWorkerSaysIsNoFailure) {
  options_.job.set_use_async(true);
  Start();
  Attach(1, 0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  v1::WorkerMessage fatal;
  fatal.mutable_fatal()->set_message("cancelled");
  Say(1, fatal);
  EXPECT_FALSE(controller_->ending());
}

// ---- checkpoints ----

class JobControllerPsSaveTest : public JobControllerPsTest {
 protected:
  void SetUp() override {
    JobControllerPsTest::SetUp();
    options_.job.set_use_async(true);
    options_.job.set_checkpoint_dir("checkpoints");
    options_.job.set_checkpoint_steps(2);
    options_.run = "run";
  }
  void Paused(ConnectionId connection) {
    const auto pauses = output_.Take(connection, v1::MasterMessage::kPause);
    ASSERT_THAT(pauses, SizeIs(1));
    v1::WorkerMessage message;
    message.mutable_paused()->set_number(pauses[0].pause().number());
    Say(connection, message);
  }
  void Read(ConnectionId connection, int64_t step) {
    v1::WorkerMessage message;
    message.mutable_checkpoint_begin()->set_step(step);
    message.mutable_checkpoint_begin()->set_lineage(1);
    Say(connection, message);
  }
  void Written(ConnectionId connection, int64_t step) {
    v1::WorkerMessage message;
    message.mutable_checkpoint_done()->set_step(step);
    message.mutable_checkpoint_done()->set_lineage(1);
    Say(connection, message);
  }
  std::vector<v1::MasterMessage> Saves(ConnectionId connection) {
    return output_.Take(connection, v1::MasterMessage::kSaveNow);
  }
  // With a ledger.
  size_t Ledgers(ConnectionId connection) {
    size_t count = 0;
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kLedger)) {
      count += message.ledger().has_ledger();
    }
    return count;
  }
};

TEST_F(JobControllerPsSaveTest, OneWorkerReadsWhileAllArePaused) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 20);
  Paused(1);
  EXPECT_THAT(Saves(1), IsEmpty()) << "worker 1 still trains";
  Paused(2);
  ASSERT_THAT(Saves(1), SizeIs(1));
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kResume), IsEmpty());
  Read(1, 2);
  EXPECT_EQ(Ledgers(1), 1);
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kResume), SizeIs(1));
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kResume), SizeIs(1));
}

TEST_F(JobControllerPsSaveTest, AWorkerThatHangsDoesNotHoldUpTheJob) {
  options_.tasks.task_timeout = absl::Seconds(10);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 20);
  Paused(1);
  now_ = controller_->NextTimer() + absl::Seconds(1);
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, ElementsAre(1));
}

TEST_F(JobControllerPsSaveTest, ASaverThatHangsDoesNotHoldUpTheJob) {
  options_.tasks.task_timeout = absl::Seconds(10);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 20);
  Paused(1);
  Paused(2);
  ASSERT_THAT(Saves(1), SizeIs(1));
  now_ += absl::Minutes(10);
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, IsEmpty()) << "a large model takes its time";
  ASSERT_LT(controller_->NextTimer(), absl::InfiniteFuture());
  now_ = controller_->NextTimer();
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, ElementsAre(0));
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kResume), SizeIs(1));
}

TEST_F(JobControllerPsSaveTest, OnlyTheSaverGetsALedger) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Read(2, 0);
  EXPECT_EQ(Ledgers(2), 0) << "nobody asked for it";
  Pushed(1, 0, 20);
  Paused(1);
  Paused(2);
  Read(2, 2);
  EXPECT_EQ(Ledgers(2), 0);
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kResume), IsEmpty());
}

TEST_F(JobControllerPsSaveTest, NoneIsBegunWhileACrashedWorkersPushesAreOpen) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto first = Tasks(1);
  Pushed(1, 0, 10);
  Close(1);
  Pushed(2, 1, 10);
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kPause), IsEmpty());
}

TEST_F(JobControllerPsSaveTest, ACrashEndsThePause) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 20);
  Paused(1);
  Close(2);
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kResume), SizeIs(1));
  EXPECT_THAT(Saves(1), IsEmpty());
}

TEST_F(JobControllerPsSaveTest, TheLastModelIsSavedAgainWhenItsWriterDies) {
  options_.job.set_checkpoint_steps(0);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  // Each trains what it gets.
  for (int i = 0; i < 8; ++i) {
    for (const int64_t id : {0, 1}) {
      int64_t records = 0;
      for (const v1::Task& task : Tasks(id + 1)) {
        records += task.range().end() - task.range().begin();
      }
      Pushed(id + 1, id, records);
    }
  }
  ASSERT_EQ(controller_->progress().step, 8);
  ASSERT_FALSE(controller_->ending());
  ASSERT_THAT(Saves(1), SizeIs(1));
  Read(1, 8);
  EXPECT_EQ(Ledgers(1), 1);
  Close(1);
  ASSERT_THAT(Saves(2), SizeIs(1));
  Read(2, 8);
  EXPECT_FALSE(controller_->ending());
  Written(2, 8);
  EXPECT_TRUE(controller_->succeeding());
}

TEST_F(JobControllerPsSaveTest, TrainingThatIsStoppedIsSavedInAnyCase) {
  options_.tasks.max_step = 2;
  options_.job.set_checkpoint_steps(0);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Close(1);
  Pushed(2, 1, 20);
  v1::WorkerMessage idle;
  idle.mutable_idle();
  Say(2, idle);
  const auto saves = Saves(2);
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_TRUE(saves[0].save_now().versions_may_differ());
  Read(2, 2);
  Written(2, 2);
  EXPECT_TRUE(controller_->succeeding());
}

// ---- broken off ----

TEST_F(JobControllerPsSaveTest, AJobThatIsToStopSavesItsModelFirst) {
  options_.job.set_checkpoint_steps(0);
  options_.membership.save_last = true;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 10);
  controller_->StopJob(now_, "stopped");
  EXPECT_FALSE(controller_->ending());
  Paused(1);
  EXPECT_THAT(Saves(1), IsEmpty());
  // What it had not reported yet.
  Pushed(2, 1, 10);
  Paused(2);
  // The one that was heard of last.
  const auto saves = Saves(2);
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0].save_now().step(), 2);
  EXPECT_FALSE(saves[0].save_now().versions_may_differ());
  EXPECT_GT(controller_->NextTimer(), now_ + absl::Minutes(29))
      << "a large model takes its time";
  Read(2, 2);
  EXPECT_EQ(Ledgers(2), 1);
  EXPECT_FALSE(controller_->ending()) << "it is not written yet";
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kResume), IsEmpty());
  Written(2, 2);
  EXPECT_TRUE(controller_->ending());
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kStop), SizeIs(1));
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kStop), SizeIs(1));
}

TEST_F(JobControllerPsSaveTest, AnotherSavesWhenTheSaverOfAStoppedJobDies) {
  options_.job.set_checkpoint_steps(0);
  options_.membership.save_last = true;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 10);
  controller_->StopJob(now_, "stopped");
  Paused(1);
  Paused(2);
  ASSERT_THAT(Saves(1), SizeIs(1));
  // It had reported all that it pushed.
  Close(1);
  Paused(2);
  const auto saves = Saves(2);
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_FALSE(saves[0].save_now().versions_may_differ());
  Read(2, 1);
  Written(2, 1);
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerPsSaveTest, AStoppedJobTrainsWhatIsSuspectFirst) {
  options_.job.set_checkpoint_steps(0);
  options_.membership.save_last = true;
  options_.tasks.training_shards[0].set_end(800);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(2, 1, 10);
  const size_t held = Tasks(1).size();
  Close(1);
  controller_->StopJob(now_, "stopped");
  EXPECT_FALSE(controller_->ending());
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kPause), IsEmpty());
  for (int64_t total = 20; controller_->progress().step < 40; total += 10) {
    Pushed(2, 1, total);
    Tasks(2);
    const auto& sent = output_.sent[2];
    if (std::any_of(sent.begin(), sent.end(),
                    [](const auto& message) { return message.has_pause(); })) {
      break;
    }
  }
  Paused(2);
  EXPECT_THAT(Saves(2), SizeIs(1));
  // What worker 0 held is in it.
  const auto& ranges = output_.committed;
  for (size_t i = 0; i < held; ++i) {
    const int64_t begin = tasks_[1][i].range().begin();
    EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&](const auto& it) {
      return it.first == begin;
    })) << begin;
  }
}

TEST_F(JobControllerPsSaveTest, AStopDoesNotWaitForEver) {
  options_.membership.save_last = true;
  Start();
  Attach(1, 0);
  Pushed(1, 0, 10);
  controller_->StopJob(now_, "stopped");
  ASSERT_FALSE(controller_->ending());
  EXPECT_EQ(controller_->NextTimer(), now_ + kStopGrace);
  controller_->OnTimer(now_ + kStopGrace);
  EXPECT_TRUE(controller_->ending()) << "the worker did not pause";
}

TEST_F(JobControllerPsSaveTest, ASecondStopDoesNotWait) {
  options_.membership.save_last = true;
  Start();
  Attach(1, 0);
  Pushed(1, 0, 10);
  controller_->StopJob(now_, "stopped");
  Paused(1);
  ASSERT_THAT(Saves(1), SizeIs(1));
  controller_->StopJob(now_, "stopped");
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerPsSaveTest, AStoppedSynchronousJobEndsItsVersionFirst) {
  options_.job.set_use_async(false);
  options_.job.set_grads_to_wait(1);
  options_.job.set_checkpoint_steps(0);
  options_.membership.save_last = true;
  Start();
  Attach(1, 0);
  Stage(1, Tasks(1)[0], 0, 0);
  Applied(0, 1);
  controller_->StopJob(now_, "stopped");
  EXPECT_THAT(Saves(1), IsEmpty()) << "server 1 does not have the version";
  Applied(1, 1);
  ASSERT_THAT(Saves(1), SizeIs(1));
  Stage(1, Tasks(1)[0], 10, 1);
  Read(1, 1);
  Written(1, 1);
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(controller_->progress().step, 1);
}

TEST_F(JobControllerPsSaveTest, TheLastOfThoseWhoLeaveSavesTheModel) {
  options_.job.set_checkpoint_steps(0);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Pushed(1, 0, 10);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kStop), SizeIs(1));
  Say(2, leaving);
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kStop), IsEmpty());
  ASSERT_THAT(Saves(2), SizeIs(1));
  Read(2, 1);
  EXPECT_EQ(Ledgers(2), 1);
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kStop), IsEmpty());
  Written(2, 1);
  EXPECT_THAT(output_.Take(2, v1::MasterMessage::kStop), SizeIs(1));
  EXPECT_FALSE(controller_->ending()) << "others will train on";
}

TEST_F(JobControllerPsSaveTest, NothingIsSavedTwiceForThoseWhoLeave) {
  Start();
  Attach(1, 0);
  Pushed(1, 0, 20);
  Paused(1);
  Read(1, 2);
  Written(1, 2);
  ASSERT_THAT(Saves(1), SizeIs(1));
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  EXPECT_THAT(Saves(1), IsEmpty());
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kStop), SizeIs(1));
}

TEST_F(JobControllerPsTest, EndsWhenAllIsCommitted) {
  options_.job.set_use_async(true);
  Start();
  Attach(1, 0);
  for (int64_t total = 10; total <= 80; total += 10) Pushed(1, 0, total);
  EXPECT_TRUE(controller_->ending());
  EXPECT_TRUE(controller_->succeeding());
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kStop), SizeIs(1));
}

TEST_F(JobControllerPsTest, WhatIsStoppedEarlyWaitsForTheLastMinibatches) {
  options_.job.set_use_async(true);
  options_.tasks.max_step = 2;
  options_.tasks.train_end_task = true;
  Start();
  Attach(1, 0);
  Pushed(1, 0, 20);
  EXPECT_THAT(output_.Take(1, v1::MasterMessage::kTrainingDone), SizeIs(1));
  EXPECT_THAT(Tasks(1, v1::TRAIN_END_CALLBACK), IsEmpty());
  v1::WorkerMessage idle;
  idle.mutable_idle();
  Say(1, idle);
  EXPECT_THAT(Tasks(1, v1::TRAIN_END_CALLBACK), SizeIs(1));
}

// The worker repeats its reports to a master that it takes for a new one.
TEST_F(JobControllerPsTest, ExportedRowsAreToldOnce) {
  options_.job.set_use_async(true);
  options_.tasks.max_step = 2;
  options_.tasks.train_end_task = true;
  Start();
  Attach(1, 0);
  Pushed(1, 0, 20);
  v1::WorkerMessage idle;
  idle.mutable_idle();
  Say(1, idle);
  const auto tasks = Tasks(1, v1::TRAIN_END_CALLBACK);
  ASSERT_THAT(tasks, SizeIs(1));
  v1::WorkerMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_task_id(tasks[0].task_id());
  done.mutable_exported_rows()->set_folder("out/tables");
  done.mutable_exported_rows()->set_rows(7);
  Say(1, message);
  Say(1, message);
  ASSERT_THAT(output_.exported, SizeIs(1));
  EXPECT_EQ(output_.exported[0].folder(), "out/tables");
  EXPECT_EQ(output_.exported[0].rows(), 7);
  EXPECT_TRUE(controller_->succeeding());
}

}  // namespace
}  // namespace elasticdl::master
