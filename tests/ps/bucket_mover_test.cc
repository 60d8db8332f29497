// Buckets that move between servers with sockets while workers push.
#include "elasticdl/ps/bucket_mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/ps/client.h"
#include "exact_model.h"
#include "model.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

constexpr char kSecret[] = "a secret";
constexpr int kServers = 3;

class BucketMoverTest : public testing::Test {
 protected:
  BucketMoverTest() : told_(100) {
    for (int i = 0; i < kServers; ++i) addresses_.add_addresses();
    book_ = std::make_unique<ServerBook>(addresses_);
    servers_.resize(kServers);
    movers_.resize(kServers);
    for (int i = 0; i < kServers; ++i) Start(i);
  }
  ~BucketMoverTest() override { movers_.clear(); }

  void Start(int server) {
    const auto index = static_cast<size_t>(server);
    ServerOptions options;
    options.server = server;
    options.address = {"127.0.0.1", 0};
    options.secret = kSecret;
    options.log_dir = dir_.Path("ps-" + std::to_string(server));
    auto started = Server::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    servers_[index] = *std::move(started);
    *addresses_.mutable_addresses(server) =
        net::Address{"127.0.0.1", servers_[index]->port()}.ToString();
    book_->Set(addresses_);
    BucketMover::Options move;
    move.server = server;
    move.secret = kSecret;
    move.tell = [this, server](v1::ServerMoved moved) {
      told_.Push({server, std::move(moved)});
    };
    movers_[index] =
        std::make_unique<BucketMover>(move, *servers_[index], addresses_);
    for (const auto& mover : movers_) {
      if (mover != nullptr) mover->SetServers(addresses_);
    }
  }
  std::unique_ptr<Client> MakeClient() {
    Client::Options options;
    options.secret = kSecret;
    options.find = [this](int server, absl::Duration timeout) {
      if (on_find_ != nullptr) on_find_(server);
      return book_->Find(server, timeout);
    };
    auto client = std::make_unique<Client>(options, BucketMap::Even(2));
    absl::Status status = client->Define(definition_);
    EXPECT_TRUE(status.ok()) << status;
    const std::vector<float> zeros(
        static_cast<size_t>(DenseCount(definition_)));
    status = client->SetInitialValues(zeros.data());
    EXPECT_TRUE(status.ok()) << status;
    return client;
  }
  void Push(Client& client, int64_t number) {
    const Gradient gradient = ExactGradient(definition_, number);
    const absl::Status status =
        client.Push(gradient.name, gradient.dense.data(),
                    {{0, gradient.ids[0], gradient.rows[0].data()}});
    ASSERT_TRUE(status.ok()) << status;
  }
  v1::MoveBuckets StepTo(const BucketMap& next) const {
    v1::MoveBuckets step;
    *step.mutable_map() = ToProto(next);
    step.mutable_map()->set_moves(true);
    step.set_forget_before(next.version());
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      if (map_.owner(bucket) == next.owner(bucket)) continue;
      v1::BucketMove& move = *step.add_moves();
      move.set_bucket(bucket);
      move.set_from(map_.owner(bucket));
    }
    return step;
  }
  void AwaitDone(const v1::MoveBuckets& step) {
    std::set<int> done;
    while (done.size() < kServers) {
      const auto told = told_.Pop(absl::Seconds(60));
      ASSERT_TRUE(told.has_value()) << "a server does not answer";
      ASSERT_EQ(told->second.error(), "");
      if (told->second.map_version() != step.map().version()) continue;
      done.insert(told->first);
    }
  }
  void MoveTo(int servers) {
    const BucketMap next = map_.Rebalanced(servers);
    const v1::MoveBuckets step = StepTo(next);
    for (const auto& mover : movers_) mover->Begin(step);
    AwaitDone(step);
    map_ = next;
  }
  // Every push of 0 .. count-1 is in the model once.
  void ExpectModel(Client& client, int64_t count) {
    std::vector<float> dense(static_cast<size_t>(DenseCount(definition_)));
    std::map<int64_t, std::vector<float>> rows;
    for (int64_t n = 0; n < count; ++n) {
      const Gradient gradient = ExactGradient(definition_, n);
      for (size_t i = 0; i < dense.size(); ++i) dense[i] -= gradient.dense[i];
      for (size_t i = 0; i < gradient.ids[0].size(); ++i) {
        std::vector<float>& row = rows[gradient.ids[0][i]];
        row.resize(2);
        for (size_t d = 0; d < 2; ++d) row[d] -= gradient.rows[0][i * 2 + d];
      }
    }
    std::vector<int64_t> ids;
    std::vector<float> expected;
    for (const auto& [id, row] : rows) {
      ids.push_back(id);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    std::vector<float> got_dense(dense.size());
    std::vector<float> got(expected.size());
    const auto version = client.Pull(got_dense.data(), {{0, ids, got.data()}});
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(*version, count);
    EXPECT_EQ(got_dense, dense);
    EXPECT_EQ(got, expected);
  }

  const v1::PsDefinition definition_ = ExactDefinition();
  elasticdl::test::TempDir dir_;
  BucketMap map_ = BucketMap::Even(2);
  v1::Servers addresses_;
  std::unique_ptr<ServerBook> book_;
  std::function<void(int)> on_find_;
  Queue<std::pair<int, v1::ServerMoved>> told_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<BucketMover>> movers_;
};

TEST_F(BucketMoverTest, WorkersPushMeanwhile) {
  std::atomic<bool> over = false;
  std::atomic<int64_t> next = 0;
  const auto first = MakeClient();
  const auto second = MakeClient();
  Push(*first, next++);
  std::vector<Thread> workers;
  for (Client* client : {first.get(), second.get()}) {
    workers.emplace_back("worker", [&, client] {
      while (!over) Push(*client, next++);
    });
  }
  for (const int servers : {3, 1, 2, 3, 2}) {
    MoveTo(servers);
    if (HasFatalFailure()) break;
  }
  over = true;
  for (Thread& worker : workers) worker.Join();
  ExpectModel(*first, next);
  EXPECT_EQ(first->map_version(), map_.version());
}

TEST_F(BucketMoverTest, TheOldOwnerComesBackLater) {
  const auto client = MakeClient();
  Push(*client, 0);
  movers_[0].reset();
  servers_[0].reset();
  addresses_.mutable_addresses(0)->clear();
  book_->Set(addresses_);
  for (size_t i = 1; i < kServers; ++i) movers_[i]->SetServers(addresses_);
  const BucketMap next = map_.Rebalanced(3);
  const v1::MoveBuckets step = StepTo(next);
  for (const auto& mover : movers_) {
    if (mover != nullptr) mover->Begin(step);
  }
  Start(0);
  movers_[0]->Begin(step);
  AwaitDone(step);
  Push(*client, 1);
  ExpectModel(*client, 2);
}

// The others have answered before the move, server 2 is gone after it.
TEST_F(BucketMoverTest, AServerIsScaledAwayInTheMiddleOfAPush) {
  const auto client = MakeClient();
  MoveTo(3);
  Push(*client, 0);
  on_find_ = [this](int server) {
    if (server != 2 || servers_[2] == nullptr) return;
    MoveTo(2);
    movers_[2].reset();
    servers_[2].reset();
    addresses_.mutable_addresses()->RemoveLast();
    book_->Set(addresses_);
  };
  client->OnMoved(2);
  Push(*client, 1);
  EXPECT_EQ(servers_[2], nullptr);
  ExpectModel(*client, 2);
  EXPECT_EQ(client->map_version(), map_.version());
}

TEST_F(BucketMoverTest, AStepMayBeSaidAgain) {
  const auto client = MakeClient();
  Push(*client, 0);
  const v1::MoveBuckets step = StepTo(map_.Rebalanced(3));
  for (int i = 0; i < 2; ++i) {
    for (const auto& mover : movers_) mover->Begin(step);
    AwaitDone(step);
  }
  ExpectModel(*client, 1);
}

TEST_F(BucketMoverTest, ABucketThatNobodyKeepsIsAnError) {
  const auto client = MakeClient();
  Push(*client, 0);
  MoveTo(3);
  // Server 2 is told that a bucket comes which server 0 never had.
  v1::MoveBuckets step = StepTo(map_.Rebalanced(1).Rebalanced(2));
  for (v1::BucketMove& move : *step.mutable_moves()) move.set_from(2);
  movers_[0]->Begin(step);
  movers_[2]->Begin(step);
  bool failed = false;
  while (!failed) {
    const auto told = told_.Pop(absl::Seconds(60));
    ASSERT_TRUE(told.has_value());
    failed = !told->second.error().empty();
  }
}

}  // namespace
}  // namespace elasticdl::ps
