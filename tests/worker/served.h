// Parameter servers for tests of the worker: real ones, with sockets and logs,
// in the test's process; a model whose parameters count the minibatches that
// are in it; and another worker that reads and changes what the servers have.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/model/internal/unique_ids.h"
#include "elasticdl/ps/bucket_mover.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"
#include "members.h"
#include "server_dense.h"
#include "server_pipe.h"
#include "support/temp_dir.h"

namespace elasticdl::worker::test {

inline constexpr char kServersSecret[] = "the token of this job";

inline void ExpectOk(const absl::Status& status) {
  EXPECT_TRUE(status.ok()) << status;
}

// Each minibatch adds 1 to both values of "weight", and to the row of each of
// its ids the id's part of the minibatch (SGD with the learning rate 1).
class ServedModel : public FaultyModel {
 public:
  ServedModel() : FaultyModel(CountedData()) {}
  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions& options) override;
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    return OptimizerSpec::Parse(optimizer);
  }
  absl::StatusOr<model::CallbackSet> CreateCallbacks() override {
    return model::CallbackSet(callbacks);
  }

  // Set before CreateNetwork.
  std::string optimizer = "SGD(lr=1)";
  int64_t dim = 2;
  // The mean of the ids of the last minibatch.
  bool with_buffer = false;
  Callbacks callbacks;

  // The layer asks for the rows of other ids than those in the features.
  int64_t shift = 0;
  // Called once, before the next minibatch is computed.
  std::function<void()> before_forward;
  // What each minibatch that was trained on has seen of "weight".
  std::vector<float> seen;
};

class ServedNetwork : public model::Network {
 public:
  ServedNetwork(ServedModel& model, bool sharded) : model_(model) {
    parameters_ = {{"weight", torch::zeros({2}).set_requires_grad(true)}};
    if (model.with_buffer) buffers_ = {{"mean", torch::zeros({1})}};
    if (sharded) tables_ = {{"users", model.dim, 0, "zeros", -1}};
  }
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override { training_ = true; }
  void Eval() override { training_ = false; }
  absl::StatusOr<Outputs> Forward(const Features& features) override {
    if (model_.before_forward) std::exchange(model_.before_forward, nullptr)();
    const torch::Tensor& ids = features.items().at(0).second;
    const torch::Tensor& weight = parameters_[0].second;
    if (training_) {
      model_.seen.push_back(weight[0].item<float>());
      const torch::NoGradGuard no_grad;
      for (auto& [name, buffer] : buffers_) {
        buffer.fill_(ids.to(torch::kFloat).mean().item<float>());
      }
    }
    try {
      const auto unique = elasticdl::internal::Unique(ids + model_.shift);
      const torch::Tensor rows = source_->Rows(0, unique.ids);
      return Outputs(weight.sum() +
                     rows.index_select(0, unique.positions).sum(1));
    } catch (const std::exception& error) {
      return absl::InternalError(error.what());
    }
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource* source) override { source_ = source; }
  absl::StatusOr<std::string> Serialize() const override { return ""; }

 private:
  ServedModel& model_;
  Tensors parameters_;
  Tensors buffers_;
  std::vector<ShardedTable> tables_;
  RowSource* source_ = nullptr;
  bool training_ = false;
};

inline absl::StatusOr<std::unique_ptr<model::Network>>
ServedModel::CreateNetwork(const model::NetworkOptions& options) {
  return std::make_unique<ServedNetwork>(*this, options.sharded_embeddings);
}

inline std::unique_ptr<Replica> MakeServedReplica(ServedModel& model) {
  auto made = Replica::Create(model, {1, /*sharded_embeddings=*/true},
                              /*with_optimizer=*/true);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// That of a worker with this replica whose job has no flags for servers.
inline v1::PsDefinition MakeServedDefinition(Replica& replica) {
  v1::PsDefinition definition;
  definition.set_optimizer(replica.optimizer_spec());
  definition.set_seed(1);
  ServerDense(replica, /*copies=*/false).AddTo(definition);
  for (const ShardedTable& table : replica.network().tables()) {
    v1::PsDefinition::Table& out = *definition.add_tables();
    out.set_name(table.name);
    out.set_dim(table.dim);
    out.set_initializer(table.initializer);
  }
  return definition;
}

// Find may be called by any thread, all else by the test's.
class PsServers {
 public:
  // Without logs, a server that is started again has forgotten everything.
  explicit PsServers(int count, bool logs = true)
      : logs_(logs), map_(ps::BucketMap::Even(count)) {
    for (int i = 0; i < count; ++i) Start(i);
  }

  void Start(int server) {
    ps::ServerOptions options;
    options.server = server;
    options.address = {"127.0.0.1", 0};
    options.secret = kServersSecret;
    if (logs_) options.log_dir = dir_.Path(absl::StrCat("ps-", server));
    auto started = ps::Server::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    MutexLock lock(mu_);
    if (static_cast<size_t>(server) >= servers_.size()) {
      servers_.resize(static_cast<size_t>(server) + 1);
    }
    servers_[static_cast<size_t>(server)] = *std::move(started);
  }
  void End(int server) {
    std::unique_ptr<ps::Server> ended;
    MutexLock lock(mu_);
    ended.swap(servers_[static_cast<size_t>(server)]);
  }
  // As the master tells them; of one that is away, none.
  v1::MasterMessage Addresses() const {
    v1::MasterMessage message;
    MutexLock lock(mu_);
    for (const auto& server : servers_) {
      message.mutable_servers()->add_addresses(
          server == nullptr
              ? ""
              : net::Address{"127.0.0.1", server->port()}.ToString());
    }
    return message;
  }
  absl::StatusOr<net::Address> Find(int server) const {
    MutexLock lock(mu_);
    if (static_cast<size_t>(server) >= servers_.size() ||
        servers_[static_cast<size_t>(server)] == nullptr) {
      return absl::UnavailableError("not there");
    }
    return net::Address{"127.0.0.1",
                        servers_[static_cast<size_t>(server)]->port()};
  }
  ps::Client::Options ClientOptions() const {
    ps::Client::Options options;
    options.secret = kServersSecret;
    options.patience = absl::Seconds(60);
    options.find = [this](int server, absl::Duration) { return Find(server); };
    return options;
  }
  const ps::BucketMap& map() const { return map_; }

  // Requests of all clients to all servers that run.
  int64_t Pulls() const {
    int64_t pulls = 0;
    MutexLock lock(mu_);
    for (const auto& server : servers_) {
      if (server != nullptr) pulls += server->stats().pulls;
    }
    return pulls;
  }

  // ---- what the master does ----
  void Apply(const v1::PsEntry& entry) {
    MutexLock lock(mu_);
    for (const auto& server : servers_) ExpectOk(server->Apply(entry));
  }
  // Version `version` is made of this staged gradient.
  void Commit(int64_t version, const std::string& shard, int64_t begin,
              int64_t end) {
    v1::PsEntry entry;
    v1::PsCommit& commit = *entry.mutable_commit();
    commit.set_version(version);
    commit.set_map_version(map_.version());
    commit.set_learning_rate(1);
    v1::PsRanges& ranges = *commit.add_pushes();
    ranges.set_shard(shard);
    ranges.add_bounds(begin);
    ranges.add_bounds(end);
    Apply(entry);
  }
  // A push of nothing that no other server gets.
  void PushTo(int server) {
    v1::PsEntry entry;
    v1::PsPush& push = *entry.mutable_push();
    push.set_shard("torn");
    push.set_end(1);
    push.set_map_version(map_.version());
    MutexLock lock(mu_);
    ExpectOk(servers_[static_cast<size_t>(server)]->Apply(entry));
  }
  // A newer map, in which every bucket is where it was.
  void RenewMap() {
    auto next =
        ps::BucketMap::Make(map_.version() + 1, map_.servers(), map_.owners());
    ASSERT_TRUE(next.ok());
    v1::PsEntry entry;
    *entry.mutable_map() = ToMessage(*next);
    Apply(entry);
    map_ = *std::move(next);
  }
  // To another number of servers; those that are new were started. Returns when
  // all buckets are where they belong.
  void MoveTo(int count) {
    const ps::BucketMap next = map_.Rebalanced(count);
    v1::MoveBuckets step;
    *step.mutable_map() = ToMessage(next);
    step.set_forget_before(next.version());
    for (int bucket = 0; bucket < ps::kBuckets; ++bucket) {
      if (map_.owner(bucket) == next.owner(bucket)) continue;
      v1::BucketMove& move = *step.add_moves();
      move.set_bucket(bucket);
      move.set_from(map_.owner(bucket));
    }
    const v1::Servers addresses = Addresses().servers();
    Queue<v1::ServerMoved> told(100);
    std::vector<std::unique_ptr<ps::BucketMover>> movers;
    for (int i = 0; i < addresses.addresses_size(); ++i) {
      ps::BucketMover::Options options;
      options.server = i;
      options.secret = kServersSecret;
      options.tell = [&told](v1::ServerMoved moved) {
        told.Push(std::move(moved));
      };
      ps::Server* server = nullptr;
      {
        MutexLock lock(mu_);
        server = servers_[static_cast<size_t>(i)].get();
      }
      movers.push_back(
          std::make_unique<ps::BucketMover>(options, *server, addresses));
    }
    for (const auto& mover : movers) mover->Begin(step);
    for (size_t i = 0; i < movers.size(); ++i) {
      const auto moved = told.Pop(absl::Seconds(60));
      ASSERT_TRUE(moved.has_value()) << "a server does not answer";
      ASSERT_EQ(moved->error(), "");
    }
    map_ = next;
  }

 private:
  static v1::PsMap ToMessage(const ps::BucketMap& map) {
    v1::PsMap message;
    message.set_version(map.version());
    message.set_servers(map.servers());
    message.set_moves(true);
    for (const int owner : map.owners()) message.add_owners(owner);
    return message;
  }

  const bool logs_;
  ps::BucketMap map_;
  elasticdl::test::TempDir dir_;
  mutable Mutex mu_;
  std::vector<std::unique_ptr<ps::Server>> servers_ ABSL_GUARDED_BY(mu_);
};

// Of the same job.
class OtherWorker {
 public:
  OtherWorker(PsServers& servers, const v1::PsDefinition& definition)
      : client_(servers.ClientOptions(),
                ps::BucketMap::Even(servers.map().servers())),
        dim_(static_cast<size_t>(definition.tables(0).dim())) {
    size_t values = 0;
    for (const auto& dense : definition.dense()) {
      values += static_cast<size_t>(dense.shape(0));
    }
    dense_.resize(values);
    ExpectOk(client_.Define(definition));
    ExpectOk(client_.SetInitialValues(dense_.data()));
  }

  // All dense values.
  const std::vector<float>& Dense() {
    const auto version = client_.Pull(dense_.data(), {});
    ExpectOk(version.status());
    version_ = version.ok() ? *version : -1;
    return dense_;
  }
  float Weight() { return Dense()[0]; }
  // Pushes that are in the model.
  int64_t Version() {
    Dense();
    return version_;
  }
  std::vector<float> Row(int64_t id) {
    std::vector<float> row(dim_);
    const ps::PullRows pull = {0, absl::MakeConstSpan(&id, 1), row.data()};
    ExpectOk(client_.Pull(nullptr, absl::MakeConstSpan(&pull, 1)).status());
    return row;
  }
  // Adds `amount` to all dense values, and to the row of `id` unless it is
  // negative. With `stage` when it is committed as the same records of "other".
  void Add(float amount, int64_t id = -1, bool stage = false) {
    v1::PsPush push;
    push.set_shard("other");
    push.set_begin(pushes_);
    push.set_end(++pushes_);
    push.set_learning_rate(1);
    push.set_stage(stage);
    push.set_base_version(stage ? version_ : 0);
    const std::vector<float> gradients(dense_.size(), -amount);
    const std::vector<float> row(dim_, -amount);
    std::vector<ps::PushRows> rows;
    if (id >= 0) {
      rows.push_back({0, absl::MakeConstSpan(&id, 1), row.data()});
    }
    ExpectOk(client_.Push(push, gradients.data(), rows));
  }
  ps::Client& client() { return client_; }

 private:
  ps::Client client_;
  const size_t dim_;
  std::vector<float> dense_;
  int64_t version_ = 0;
  int64_t pushes_ = 0;
};

// A minibatch of these ids: records [begin, begin + number of ids).
struct ServedBatch {
  ServedBatch(int64_t first, const std::vector<int64_t>& ids)
      : begin(first),
        end(first + static_cast<int64_t>(ids.size())),
        minibatch(std::make_shared<const v1::Task>(), begin, end, {}),
        batch{Features(torch::tensor(ids, torch::kLong)),
              torch::zeros({end - begin})} {}

  const int64_t begin;
  const int64_t end;
  Minibatch minibatch;
  Batch batch;
};

// A replica and its exchange with the servers, without a trainer.
class PipeWorker {
 public:
  PipeWorker(PsServers& servers, ServedModel& model, bool overlap)
      : replica(MakeServedReplica(model)),
        client(servers.ClientOptions(),
               ps::BucketMap::Even(servers.map().servers())),
        pipe(client, *replica, overlap) {
    replica->SetRowSource(pipe.rows());
  }
  v1::PsDefinition Definition() { return MakeServedDefinition(*replica); }
  void Define() { ExpectOk(client.Define(Definition())); }
  void Connect() {
    Define();
    ExpectOk(client.SetInitialValues(pipe.dense().Values().data()));
  }

  void Pull(const ServedBatch& next, bool dense = true) {
    ExpectOk(pipe.Pull(next.minibatch, next.batch.features, dense));
  }
  void PullAhead(const ServedBatch& next, bool dense = true) {
    pipe.PullAhead(next.minibatch, next.batch.features, dense);
  }
  void Compute(const ServedBatch& next) {
    replica->parameters().ZeroGradients();
    ExpectOk(replica->AddGradients(next.batch, 1).status());
  }
  void Push(const ServedBatch& done) {
    v1::PsPush push;
    push.set_shard("shard");
    push.set_begin(done.begin);
    push.set_end(done.end);
    push.set_learning_rate(1);
    pipe.Push(push, done.batch.features);
  }
  // All of it, one after the other.
  void Train(const ServedBatch& next) {
    Pull(next);
    Compute(next);
    Push(next);
    ExpectOk(pipe.FinishPush());
  }

  const std::unique_ptr<Replica> replica;
  ps::Client client;
  ServerPipe pipe;
};

}  // namespace elasticdl::worker::test
