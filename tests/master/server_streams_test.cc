// What servers and workers hear of each other.
#include "server_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Outbox : public WorkerPort, public JobObserver {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message);
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId connection, const absl::Status& status) override {
    closed[connection] = status;
  }
  void KillWorker(int64_t, const std::string&) override {}
  void OnWorkerReady(int64_t, int64_t, int64_t) override {}
  void OnWorkerLost(int64_t, const std::string&) override {}
  void OnCommit(const CommittedRange&, int64_t, int64_t) override {}
  void OnCutBack(int64_t) override {}
  void OnProgress(const v1::Progress&, int64_t) override {}
  void OnWorld(const WorldChange&) override {}
  void OnFirstStep(int64_t, int64_t) override {}
  void OnCheckpoint(const v1::CheckpointDone&) override {}
  void OnEvaluation(const EvaluationResult&) override {}
  void OnTaskDone(int64_t) override {}
  void OnQuarantined(const QuarantinedRange&) override {}
  void OnServersScaled(int) override {}
  void OnPart(const PartChange&) override {}
  void OnMessage(const std::string&) override {}

  std::map<ConnectionId, std::vector<v1::MasterMessage>> sent;
  std::map<ConnectionId, absl::Status> closed;
};

class ServerStreamsTest : public testing::Test {
 protected:
  ServerStreamsTest() {
    JobController::Options options;
    options.job.set_job_type(v1::TRAINING_ONLY);
    options.job.set_num_ps_pods(2);
    options.run = "run";
    v1::LedgerShard& shard = options.tasks.training_shards.emplace_back();
    shard.set_name("train");
    shard.set_end(100);
    auto controller = JobController::Create(options, outbox_, outbox_, now_);
    EXPECT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
    streams_ = std::make_unique<ServerStreams>(*controller_, outbox_, workers_);
  }

  bool Hello(ConnectionId connection, int server, const std::string& address) {
    v1::WorkerMessage message;
    message.mutable_server_hello()->set_server(server);
    message.mutable_server_hello()->set_address(address);
    return streams_->OnMessage(now_, connection, message);
  }
  // The addresses in the Welcome of a worker that comes now.
  v1::Servers WelcomeWorker(ConnectionId connection) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(-1);
    EXPECT_FALSE(streams_->OnMessage(now_, connection, hello));
    controller_->OnMessage(now_, connection, hello);
    workers_[connection] = connection;
    const v1::Servers servers =
        outbox_.sent[connection].at(0).welcome().servers();
    outbox_.sent.clear();
    return servers;
  }

  const absl::Time now_ = absl::UnixEpoch();
  Outbox outbox_;
  std::map<ConnectionId, int64_t> workers_;
  std::unique_ptr<JobController> controller_;
  std::unique_ptr<ServerStreams> streams_;
};

TEST_F(ServerStreamsTest, WorkersHearWhereServersAre) {
  EXPECT_THAT(WelcomeWorker(1).addresses(), ElementsAre("", ""));
  EXPECT_TRUE(Hello(10, 1, ""));
  ASSERT_THAT(outbox_.sent[10], SizeIs(1));
  const v1::Welcome& welcome = outbox_.sent[10][0].welcome();
  EXPECT_EQ(welcome.worker_id(), 1);
  EXPECT_EQ(welcome.job().run(), "run");
  EXPECT_THAT(outbox_.sent[1], IsEmpty());
  EXPECT_TRUE(Hello(10, 1, "h:1"));
  // Servers, too: they fetch buckets from each other.
  ASSERT_THAT(outbox_.sent[10], SizeIs(2));
  EXPECT_THAT(outbox_.sent[10][1].servers().addresses(),
              ElementsAre("", "h:1"));
  ASSERT_THAT(outbox_.sent[1], SizeIs(1));
  EXPECT_THAT(outbox_.sent[1][0].servers().addresses(), ElementsAre("", "h:1"));
  EXPECT_THAT(WelcomeWorker(2).addresses(), ElementsAre("", "h:1"));
  EXPECT_TRUE(streams_->OnClosed(now_, 10, absl::UnavailableError("gone")));
  for (const ConnectionId worker : {1, 2}) {
    ASSERT_THAT(outbox_.sent[worker], SizeIs(1));
    EXPECT_THAT(outbox_.sent[worker][0].servers().addresses(),
                ElementsAre("", ""));
  }
  EXPECT_FALSE(streams_->OnClosed(now_, 1, absl::OkStatus()));
}

TEST_F(ServerStreamsTest, NewStreamOfAServerReplacesTheOldOne) {
  EXPECT_TRUE(Hello(10, 0, "h:0"));
  EXPECT_TRUE(Hello(11, 0, "h:0"));
  EXPECT_EQ(outbox_.closed[10].code(), absl::StatusCode::kFailedPrecondition);
  outbox_.sent.clear();
  streams_->Send(0, v1::MasterMessage());
  // It is not there.
  streams_->Send(1, v1::MasterMessage());
  EXPECT_THAT(outbox_.sent, SizeIs(1));
  EXPECT_THAT(outbox_.sent[11], SizeIs(1));
  // The controller, which would not know who that is, never sees it.
  v1::WorkerMessage late;
  late.mutable_server_committed();
  EXPECT_TRUE(streams_->OnMessage(now_, 10, late));
  EXPECT_TRUE(streams_->OnClosed(now_, 10, absl::OkStatus()));
  streams_->StopAll();
  ASSERT_THAT(outbox_.sent[11], SizeIs(2));
  EXPECT_TRUE(outbox_.sent[11][1].has_stop());
}

TEST_F(ServerStreamsTest, StopsOneThatIsThere) {
  EXPECT_TRUE(Hello(10, 0, "h:0"));
  outbox_.sent.clear();
  EXPECT_TRUE(streams_->Stop(0));
  EXPECT_FALSE(streams_->Stop(1));
  ASSERT_THAT(outbox_.sent[10], SizeIs(1));
  EXPECT_TRUE(outbox_.sent[10][0].has_stop());
  EXPECT_THAT(outbox_.sent, SizeIs(1));
}

TEST_F(ServerStreamsTest, StrangersAreRefused) {
  EXPECT_TRUE(Hello(10, 2, "h:2"));
  EXPECT_EQ(outbox_.closed[10].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(outbox_.sent[10], IsEmpty());
  // A worker cannot become a server.
  WelcomeWorker(1);
  EXPECT_FALSE(Hello(1, 0, "h:0"));
  EXPECT_THAT(WelcomeWorker(2).addresses(), ElementsAre("", ""));
}

}  // namespace
}  // namespace elasticdl::master
