// Buckets that move between parameter servers: when a step begins, who is told,
// what waits meanwhile, and how another master goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "job_controller.h"
#include "master/job_controller_ps.h"

namespace elasticdl::master {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class JobControllerMoveTest : public JobControllerPsTest {
 protected:
  void SetUp() override {
    JobControllerPsTest::SetUp();
    options_.tasks.training_shards[0].set_end(8000);
    options_.job.set_grads_to_wait(1);
    options_.record = [this](const v1::JournalRecord& record) {
      journal_.push_back(record);
    };
  }
  void StartWithServers() {
    Start();
    ASSERT_TRUE(controller_->Begin(now_).ok());
    for (int server = 0; server < 2; ++server) {
      controller_->OnServerAttached(now_, server, 0);
    }
    Attach(1, 0);
  }
  // The steps that the server was told.
  std::vector<v1::MoveBuckets> Steps(int server) {
    std::vector<v1::MoveBuckets> steps;
    for (const v1::MasterMessage& message : output_.to_servers[server]) {
      if (message.has_move_buckets()) steps.push_back(message.move_buckets());
    }
    output_.to_servers[server].clear();
    return steps;
  }
  void Moved(int server, const v1::MoveBuckets& step) {
    v1::WorkerMessage message;
    message.mutable_server_moved()->set_map_version(step.map().version());
    message.mutable_server_moved()->set_forget_before(step.forget_before());
    controller_->OnServerMessage(now_, server, message);
  }
  // Goes on until nothing is left to move.
  void MoveAll() {
    for (int i = 0; i < 200; ++i) {
      now_ = std::max(
          now_ + absl::Milliseconds(1),
          std::min(controller_->NextTimer(), now_ + absl::Milliseconds(30)));
      controller_->OnTimer(now_);
      for (int server = 0; server < 4; ++server) {
        for (const v1::MoveBuckets& step : Steps(server)) Moved(server, step);
      }
    }
  }

  std::vector<v1::JournalRecord> journal_;
};

TEST_F(JobControllerMoveTest, BeginsWhenTheNewServerAndTheModelAreThere) {
  options_.job.set_use_async(true);
  StartWithServers();
  controller_->ScaleServers(now_, 3);
  EXPECT_EQ(controller_->num_servers(), 3);
  Pushed(1, 0, 10);
  EXPECT_THAT(Steps(0), IsEmpty()) << "server 2 is not there";
  controller_->OnServerAttached(now_, 2, 0);
  const auto steps = Steps(0);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_THAT(Steps(1), SizeIs(1));
  EXPECT_THAT(Steps(2), SizeIs(1));
  EXPECT_EQ(steps[0].map().version(), 2);
  EXPECT_EQ(steps[0].moves_size(), 1);
}

TEST_F(JobControllerMoveTest, WaitsForTheFirstCommit) {
  options_.job.set_use_async(true);
  StartWithServers();
  controller_->ScaleServers(now_, 1);
  EXPECT_THAT(Steps(0), IsEmpty()) << "there may be no values yet";
  Pushed(1, 0, 10);
  EXPECT_THAT(Steps(0), SizeIs(1));
}

TEST_F(JobControllerMoveTest, AServerThatHasNoBucketsYetMayHaveNoLog) {
  options_.job.set_use_async(true);
  StartWithServers();
  Pushed(1, 0, 30);
  controller_->ScaleServers(now_, 3);
  controller_->OnServerAttached(now_, 2, 0);
  const auto steps = Steps(2);
  ASSERT_THAT(steps, SizeIs(1));
  controller_->OnServerDetached(2);
  controller_->OnServerAttached(now_, 2, 0);
  EXPECT_FALSE(controller_->ending());
  EXPECT_THAT(Steps(2), SizeIs(1)) << "it is told again";
  for (int server = 0; server < 3; ++server) Moved(server, steps[0]);
  controller_->OnServerDetached(2);
  controller_->OnServerAttached(now_, 2, 0);
  EXPECT_TRUE(controller_->ending()) << "now it has something to lose";
}

TEST_F(JobControllerMoveTest, ServersThatAreLeftWithoutBucketsMayGo) {
  options_.job.set_use_async(true);
  StartWithServers();
  Pushed(1, 0, 10);
  controller_->ScaleServers(now_, 1);
  EXPECT_EQ(controller_->num_servers(), 2);
  MoveAll();
  EXPECT_THAT(output_.scaled, ElementsAre(1));
  EXPECT_EQ(controller_->num_servers(), 1);
  controller_->OnServerDetached(1);
  EXPECT_EQ(controller_->Activity(), "") << "nobody waits for it";
  Pushed(1, 0, 20);
  EXPECT_EQ(controller_->progress().step, 2);
}

TEST_F(JobControllerMoveTest, AServerThatCannotTakeItsBucketsFailsTheJob) {
  options_.job.set_use_async(true);
  StartWithServers();
  Pushed(1, 0, 10);
  controller_->ScaleServers(now_, 1);
  v1::WorkerMessage message;
  message.mutable_server_moved()->set_error("does not fit");
  controller_->OnServerMessage(now_, 0, message);
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerMoveTest, NoVersionIsMadeMeanwhile) {
  StartWithServers();
  const auto tasks = Tasks(1);
  Stage(1, tasks[0], 0, 0);
  controller_->ScaleServers(now_, 1);
  output_.to_servers.clear();
  controller_->OnTimer(now_);
  EXPECT_THAT(Steps(0), IsEmpty()) << "version 1 is open";
  Applied(0, 1);
  Applied(1, 1);
  const auto steps = Steps(0);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_THAT(Results(1), ElementsAre(1));
  // Staged before the worker heard of the map: it is gone.
  Stage(1, tasks[0], 10, 1);
  EXPECT_THAT(Results(1), IsEmpty());
  output_.to_servers.clear();
  Moved(0, steps[0]);
  Moved(1, steps[0]);
  EXPECT_THAT(Results(1), ElementsAre(0)) << "computed again";
  map_version_ = 2;
  Stage(1, tasks[0], 10, 1);
  ASSERT_THAT(output_.to_servers[0], SizeIs(1));
  EXPECT_EQ(output_.to_servers[0][0].commit().map_version(), 2);
  Applied(0, 2);
  Applied(1, 2);
  EXPECT_THAT(Results(1), ElementsAre(2));
}

// What a server says of a version that all have already.
TEST_F(JobControllerMoveTest, AnErrorThatComesTooLateFailsNothing) {
  StartWithServers();
  const auto tasks = Tasks(1);
  Stage(1, tasks[0], 0, 0);
  v1::WorkerMessage late;
  late.mutable_server_committed()->set_version(1);
  late.mutable_server_committed()->set_error("made for another map");
  Applied(0, 1);
  Applied(1, 1);
  controller_->OnServerMessage(now_, 1, late);
  EXPECT_FALSE(controller_->ending());
  Stage(1, tasks[0], 10, 1);
  controller_->OnServerMessage(now_, 1, late);
  EXPECT_FALSE(controller_->ending());
  late.mutable_server_committed()->set_version(2);
  controller_->OnServerMessage(now_, 1, late);
  EXPECT_TRUE(controller_->ending());
}

// The model has grown since fewer servers were asked for.
TEST_F(JobControllerMoveTest, AModelThatDoesNotFitStaysWhereItIs) {
  ServerMemory memory;
  options_.server_memory = &memory;
  options_.job.set_use_async(true);
  StartWithServers();
  Pushed(1, 0, 10);
  const auto tell = [&](int64_t bytes) {
    for (int server = 0; server < 2; ++server) {
      v1::Telemetry telemetry;
      telemetry.set_limit_bytes(1000);
      (*telemetry.mutable_part_bytes())[server] = bytes;
      controller_->OnServerTelemetry(now_, server, telemetry);
    }
  };
  tell(400);
  controller_->ScaleServers(now_, 1);
  const auto steps = Steps(0);
  ASSERT_THAT(steps, SizeIs(1));
  Steps(1);
  tell(501);
  Moved(0, steps[0]);
  Moved(1, steps[0]);
  MoveAll();
  EXPECT_EQ(controller_->server_target(), 2);
  EXPECT_EQ(controller_->num_servers(), 2);
  EXPECT_THAT(output_.scaled, ElementsAre(2));
  EXPECT_FALSE(controller_->ending());
  tell(400);
  controller_->ScaleServers(now_, 1);
  MoveAll();
  EXPECT_THAT(output_.scaled, ElementsAre(2, 1));
}

TEST_F(JobControllerMoveTest, AWorkerThatComesLaterIsToldTheMap) {
  options_.job.set_use_async(true);
  StartWithServers();
  Pushed(1, 0, 10);
  controller_->ScaleServers(now_, 1);
  MoveAll();
  Attach(2, 1);
  const auto welcomes = output_.Take(2, v1::MasterMessage::kWelcome);
  ASSERT_THAT(welcomes, SizeIs(1));
  const v1::PsMap& map = welcomes[0].welcome().servers().map();
  EXPECT_EQ(map.servers(), 1);
  EXPECT_GT(map.version(), 1);
}

TEST_F(JobControllerMoveTest, AnotherMasterGoesOnWithTheOpenStep) {
  for (const bool shortened : {false, true}) {
    SCOPED_TRACE(shortened);
    options_.job.set_use_async(true);
    options_.replay.clear();
    journal_.clear();
    output_.scaled.clear();
    tasks_.clear();
    output_.sent.clear();
    StartWithServers();
    Pushed(1, 0, 10);
    controller_->ScaleServers(now_, 3);
    controller_->OnServerAttached(now_, 2, 0);
    const auto steps = Steps(0);
    ASSERT_THAT(steps, SizeIs(1));
    Moved(0, steps[0]);
    options_.replay = shortened ? controller_->StateRecords() : journal_;
    output_.to_servers.clear();
    Start();
    ASSERT_TRUE(controller_->Begin(now_).ok());
    EXPECT_EQ(controller_->num_servers(), 3);
    // The new one has not said yet that it has its bucket.
    for (int server = 0; server < 3; ++server) {
      controller_->OnServerAttached(now_, server, server < 2 ? 1 : 0);
    }
    EXPECT_FALSE(controller_->ending());
    for (int server = 0; server < 3; ++server) {
      const auto again = Steps(server);
      ASSERT_THAT(again, SizeIs(1));
      EXPECT_EQ(again[0].SerializeAsString(), steps[0].SerializeAsString());
      Moved(server, again[0]);
    }
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(0);
    hello.mutable_hello()->set_resuming(true);
    Say(1, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready()->set_has_state(true);
    Say(1, ready);
    MoveAll();
    EXPECT_THAT(output_.scaled, ElementsAre(3));
  }
}

}  // namespace
}  // namespace elasticdl::master
