// Parameter servers behind sockets: several clients, restarts, strangers.
#include "elasticdl/ps/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/ps/client.h"
#include "model.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using ::testing::HasSubstr;

class ServerTest : public testing::Test {
 protected:
  void StartServers(int count, const std::string& optimizer = "Adagrad") {
    definition_ = TestDefinition(optimizer);
    map_ = BucketMap::Even(count);
    servers_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) Start(i);
  }
  void Start(int server) {
    ServerOptions options;
    options.server = server;
    options.address = {"127.0.0.1", 0};
    options.secret = kSecret;
    options.log_dir = dir_.Path("ps-" + std::to_string(server));
    options.snapshot_bytes = 1 << 20;
    options.request_bytes = request_bytes_;
    auto started = Server::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    MutexLock lock(mu_);
    servers_[static_cast<size_t>(server)] = *std::move(started);
    changed_.NotifyAll();
  }
  void End(int server) {
    std::unique_ptr<Server> ended;
    MutexLock lock(mu_);
    ended.swap(servers_[static_cast<size_t>(server)]);
  }
  std::unique_ptr<Client> MakeClient(
      const std::string& secret = kSecret,
      absl::Duration patience = absl::Seconds(30)) {
    Client::Options options;
    options.secret = secret;
    options.patience = patience;
    options.stranger_patience = absl::Milliseconds(50);
    options.find = [this](int server,
                          absl::Duration) -> absl::StatusOr<net::Address> {
      MutexLock lock(mu_);
      const auto& found = servers_[static_cast<size_t>(server)];
      if (found == nullptr) return absl::UnavailableError("not there");
      return net::Address{"127.0.0.1", found->port()};
    };
    return std::make_unique<Client>(options, map_);
  }
  std::unique_ptr<Client> MakeReadyClient() {
    auto client = MakeClient();
    absl::Status status = client->Define(definition_);
    EXPECT_TRUE(status.ok()) << status;
    status = client->SetInitialValues(InitialDense(definition_).data());
    EXPECT_TRUE(status.ok()) << status;
    return client;
  }
  void ExpectEqual(Client& client, ReferenceModel& reference,
                   const Gradient& ids) {
    std::vector<float> dense(reference.dense().size());
    std::vector<std::vector<float>> values;
    std::vector<PullRows> rows;
    for (size_t t = 0; t < ids.ids.size(); ++t) {
      values.emplace_back(ids.rows[t].size());
      rows.push_back({static_cast<uint32_t>(t), ids.ids[t], nullptr});
    }
    for (size_t t = 0; t < rows.size(); ++t) rows[t].rows = values[t].data();
    const auto version = client.Pull(dense.data(), rows);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(dense, reference.dense());
    for (size_t t = 0; t < rows.size(); ++t) {
      std::vector<float> expected;
      for (const int64_t id : ids.ids[t]) {
        const auto row = reference.Row(static_cast<uint32_t>(t), id);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      EXPECT_EQ(values[t], expected);
    }
  }

  void PushFromManyWorkers();

  static constexpr char kSecret[] = "the token of this job";
  test::TempDir dir_;
  size_t request_bytes_ = 0;
  v1::PsDefinition definition_;
  BucketMap map_;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<Server>> servers_ ABSL_GUARDED_BY(mu_);
};

TEST_F(ServerTest, PullsWhatWasPushed) {
  StartServers(3);
  auto client = MakeReadyClient();
  auto reader = MakeReadyClient();
  ReferenceModel reference(definition_);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < 10; ++i) {
    const Gradient gradient = RandomGradient(definition_, i, random);
    reference.Apply(gradient);
    const absl::Status pushed = Push(*client, gradient);
    ASSERT_TRUE(pushed.ok()) << pushed;
    ExpectEqual(*reader, reference, gradient);
  }
  const auto status = client->Status(false);
  ASSERT_TRUE(status.ok()) << status.status();
  for (const v1::PsReply& reply : *status) {
    EXPECT_EQ(reply.version(), 10);
    EXPECT_EQ(reply.status().pushes(), 10);
    EXPECT_EQ(reply.status().repeated_pushes(), 0);
  }
}

TEST_F(ServerTest, DenseValuesComeOnlyWhenTheyAreNew) {
  StartServers(2);
  auto client = MakeReadyClient();
  std::vector<float> dense(static_cast<size_t>(DenseCount(definition_)));
  ASSERT_TRUE(client->Pull(dense.data(), {}).ok());
  EXPECT_EQ(dense, InitialDense(definition_));
  // Nothing has changed: nothing is written.
  std::fill(dense.begin(), dense.end(), 0.0f);
  ASSERT_TRUE(client->Pull(dense.data(), {}).ok());
  EXPECT_THAT(dense, testing::Each(0.0f));
}

// A gradient that was computed on an older version than that of the last pull,
// and so again: the second one counts.
TEST_F(ServerTest, AStagedGradientHasTheVersionThatItsWorkerSays) {
  StartServers(2);
  auto client = MakeReadyClient();
  ReferenceModel reference(definition_);
  std::mt19937_64 random(1);
  const auto stage = [&](Gradient gradient, int64_t base_version) {
    gradient.name.set_stage(true);
    gradient.name.set_base_version(base_version);
    EXPECT_TRUE(Push(*client, gradient).ok());
  };
  const auto commit = [&](int64_t version, const Gradient& gradient) {
    v1::PsEntry entry;
    v1::PsCommit& commit = *entry.mutable_commit();
    commit.set_version(version);
    commit.set_map_version(map_.version());
    v1::PsRanges& ranges = *commit.add_pushes();
    ranges.set_shard(gradient.name.shard());
    ranges.add_bounds(gradient.name.begin());
    ranges.add_bounds(gradient.name.end());
    MutexLock lock(mu_);
    for (const auto& server : servers_) {
      const absl::Status applied = server->Apply(entry);
      EXPECT_TRUE(applied.ok()) << applied;
    }
  };
  const Gradient first = RandomGradient(definition_, 0, random);
  stage(first, 0);
  commit(1, first);
  reference.Apply(first);
  // Dense values of version 0, rows of version 1.
  const Gradient mixed = RandomGradient(definition_, 1, random);
  ExpectEqual(*client, reference, mixed);
  stage(mixed, 0);
  const Gradient fresh = RandomGradient(definition_, 1, random);
  stage(fresh, 1);
  commit(2, fresh);
  reference.Apply(fresh);
  ExpectEqual(*client, reference, fresh);
}

TEST_F(ServerTest, ARestartLosesNothing) {
  StartServers(2, "Adam");
  auto client = MakeReadyClient();
  ReferenceModel reference(definition_);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < 30; ++i) {
    const Gradient gradient = RandomGradient(definition_, i, random);
    reference.Apply(gradient);
    if (i % 5 == 4) {
      const int victim = static_cast<int>(random() % 2);
      End(victim);
      // The client waits for it.
      Thread starter("starter", [&] { Start(victim); });
      const absl::Status pushed = Push(*client, gradient);
      ASSERT_TRUE(pushed.ok()) << pushed;
      starter.Join();
    } else {
      ASSERT_TRUE(Push(*client, gradient).ok());
    }
    ExpectEqual(*client, reference, gradient);
  }
}

// Many workers at once: each minibatch is in the model once, whoever pushes it
// and how often.
void ServerTest::PushFromManyWorkers() {
  StartServers(2, "SGD(lr=0.001)");
  MakeReadyClient();
  constexpr int kWorkers = 4;
  constexpr int64_t kBatches = 25;
  std::vector<Thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back("worker", [this, w] {
      auto client = MakeReadyClient();
      std::mt19937_64 random(static_cast<uint64_t>(w));
      for (int64_t i = 0; i < kBatches; ++i) {
        const absl::Status pushed =
            Push(*client, RandomGradient(definition_, i, random));
        EXPECT_TRUE(pushed.ok()) << pushed;
        std::vector<float> dense(static_cast<size_t>(DenseCount(definition_)));
        EXPECT_TRUE(client->Pull(dense.data(), {}).ok());
      }
    });
  }
  for (Thread& worker : workers) worker.Join();
  const auto status = MakeReadyClient()->Status(false);
  ASSERT_TRUE(status.ok());
  for (const v1::PsReply& reply : *status) {
    EXPECT_EQ(reply.version(), kBatches);
    EXPECT_EQ(reply.status().pushes(), kBatches);
    EXPECT_EQ(reply.status().repeated_pushes(), (kWorkers - 1) * kBatches);
  }
}

TEST_F(ServerTest, ManyWorkersPushTheSameData) { PushFromManyWorkers(); }

// Each request is held alone: the others wait before they are read.
TEST_F(ServerTest, ManyWorkersWaitForRoom) {
  request_bytes_ = 1;
  PushFromManyWorkers();
}

TEST_F(ServerTest, AStrangerIsRefused) {
  StartServers(1);
  auto client = MakeClient("another token");
  const absl::Status status = client->Define(definition_);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(MakeReadyClient()->Status(false).ok());
}

TEST_F(ServerTest, GarbageEndsTheConnectionOnly) {
  StartServers(1);
  uint16_t port = 0;
  {
    MutexLock lock(mu_);
    port = servers_[0]->port();
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    auto socket = net::Socket::Connect({"127.0.0.1", port}, absl::Seconds(10));
    ASSERT_TRUE(socket.ok());
    std::string bytes(random() % 500, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    socket->Write(bytes, absl::Seconds(10)).IgnoreError();
  }
  EXPECT_TRUE(MakeReadyClient()->Status(false).ok());
}

TEST_F(ServerTest, ErrorsNameTheServer) {
  StartServers(2);
  auto client = MakeReadyClient();
  std::mt19937_64 random(1);
  Gradient gradient = RandomGradient(definition_, 0, random);
  gradient.dense[0] = std::nanf("");
  const absl::Status pushed = Push(*client, gradient);
  EXPECT_TRUE(absl::IsInvalidArgument(pushed)) << pushed;
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("parameter server"));
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("not finite"));
  // The connections are still good.
  EXPECT_TRUE(client->Status(false).ok());
}

TEST_F(ServerTest, AServerThatStaysAwayIsNamed) {
  StartServers(2);
  auto client = MakeClient(kSecret, absl::Milliseconds(50));
  End(1);
  const absl::Status status = client->Define(definition_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("parameter server 1 was away"));
}

TEST_F(ServerTest, CancelEndsAWait) {
  StartServers(1);
  auto client = MakeClient(kSecret, absl::Minutes(10));
  End(0);
  Thread canceller("canceller", [&] { client->Cancel(); });
  EXPECT_TRUE(absl::IsCancelled(client->Define(definition_)));
  canceller.Join();
}

}  // namespace
}  // namespace elasticdl::ps
