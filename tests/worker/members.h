// Members of worlds for unit tests of the worker's parts: real TrainingSessions
// of the counting model, in worlds of SimNetwork. Everything happens on the
// test's thread, except that members who meet in a collective operation are
// actors that take turns (stage.h).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "counting_model.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "environment.h"
#include "event.h"
#include "replica.h"
#include "sim_collective.h"
#include "stage.h"
#include "test_execution.h"
#include "training_session.h"

namespace elasticdl::worker::test {

// A model whose functions can be made to fail. All else is the counting model.
class FaultyModel : public model::Model {
 public:
  explicit FaultyModel(const CountedData& data)
      : model_(MakeCountingModel(data)) {}

  // What the next calls return, if it is not OK.
  absl::Status loss_status;
  // Added to the loss.
  double loss_offset = 0;
  // Instead of the counting model's, if they are set.
  std::function<absl::StatusOr<Batch>(Records)> feed;
  std::function<std::unique_ptr<data::DataReader>(const std::string& origin)>
      open_reader;
  std::function<absl::StatusOr<std::unique_ptr<model::PredictionProcessor>>()>
      processor;

  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions& options) override {
    return model_->CreateNetwork(options);
  }
  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                     const Outputs& outputs) override {
    if (!loss_status.ok()) return loss_status;
    auto loss = model_->Loss(labels, outputs);
    if (!loss.ok()) return loss;
    return *loss + loss_offset;
  }
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    return model_->Optimizer();
  }
  absl::StatusOr<Batch> Feed(Records records, Mode mode,
                             const Metadata& metadata) override {
    if (feed) return feed(records);
    return model_->Feed(records, mode, metadata);
  }
  absl::StatusOr<model::MetricSet> CreateMetrics() override {
    return model_->CreateMetrics();
  }
  absl::StatusOr<model::CallbackSet> CreateCallbacks() override {
    return model_->CreateCallbacks();
  }
  absl::StatusOr<std::unique_ptr<data::DataReader>> OpenReader(
      const std::string& origin, const data::ReaderParams& params) override {
    if (open_reader) return open_reader(origin);
    return model_->OpenReader(origin, params);
  }
  absl::StatusOr<std::unique_ptr<model::PredictionProcessor>>
  CreatePredictionProcessor(const std::string& dir) override {
    if (processor) return processor();
    return model_->CreatePredictionProcessor(dir);
  }

 private:
  const std::unique_ptr<model::Model> model_;
};

class TestQueue : public EventQueue {
 public:
  void Push(Event event) override { events.push_back(std::move(event)); }
  std::optional<Event> Pop(absl::Duration) override {
    if (events.empty()) return std::nullopt;
    Event event = std::move(events.front());
    events.pop_front();
    return event;
  }
  bool empty() const override { return events.empty(); }

  std::deque<Event> events;
};

class ManualClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time WallNow() const override { return now; }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
};

// Checkpoints are in memory; a function may be called while one is loaded.
class TestEnvironment : public Environment {
 public:
  const Clock& clock() override { return time; }
  std::unique_ptr<MinibatchSource> MakePipeline(
      const PipelineOptions&, model::Model&, data::DataReader&,
      MinibatchSource::Sink) override {
    return nullptr;
  }
  std::unique_ptr<checkpoint::Saver> MakeSaver(
      const std::string&, const checkpoint::SaveOptions&) override {
    return nullptr;
  }
  absl::StatusOr<checkpoint::Loaded> LoadCheckpoint(
      const std::string& path,
      const checkpoint::LoadOptions& options) override {
    if (while_loading) while_loading();
    if (const absl::Status status = options.progress(1, 2); !status.ok()) {
      return status;
    }
    // As one whose checksum is wrong: that is known at the end.
    if (path == "damaged") {
      checkpoint::Loaded loaded;
      loaded.optimizer = checkpoints.begin()->second.snapshot.optimizer;
      loaded.variables = checkpoints.begin()->second.snapshot.variables;
      for (checkpoint::NamedTensor& variable : loaded.variables) {
        variable.bytes = absl::MakeConstSpan(static_cast<const char*>(nullptr),
                                             variable.bytes.size());
      }
      if (const auto status = options.place(loaded); !status.ok()) {
        return status;
      }
      for (const checkpoint::NamedTensor& variable : loaded.variables) {
        if (variable.bytes.data() == nullptr) continue;
        memset(const_cast<char*>(variable.bytes.data()), 0x3f,
               variable.bytes.size());
      }
      return absl::DataLossError("damaged: checksum differs");
    }
    // Its mount does not answer.
    if (path == "stale") return ErrnoToStatus(ESTALE, "read stale");
    const auto found = checkpoints.find(path);
    if (found == checkpoints.end()) return absl::NotFoundError(path);
    const checkpoint::Snapshot& saved = found->second.snapshot;
    checkpoint::Loaded loaded;
    loaded.path = path;
    loaded.version = saved.version;
    loaded.variables = saved.variables;
    loaded.slots = saved.slots;
    loaded.optimizer = saved.optimizer;
    loaded.optimizer_step = saved.optimizer_step;
    return loaded;
  }
  std::unique_ptr<rendezvous::WorldLink> MakeLink(
      const rendezvous::WorldLink::Options& options,
      std::function<void(v1::WorkerMessage)> send,
      std::function<void(int64_t)> connected) override {
    return std::make_unique<rendezvous::WorldLink>(options, std::move(send),
                                                   std::move(connected));
  }
  std::unique_ptr<elastic::Watchdog> MakeWatchdog(
      absl::Duration, elastic::Watchdog::Report) override {
    return nullptr;
  }

  std::map<std::string, checkpoint::OwnedSnapshot> checkpoints;
  std::function<void()> while_loading;
  ManualClock time;
};

// One worker's session, with what it has sent.
class Member {
 public:
  Member(int64_t id, SimNetwork& network, const CountedData& data,
         TrainingSession::Options options = {})
      : id(id), data_(data), model(data) {
    auto made =
        Replica::Create(model, {1}, /*with_optimizer=*/true, TestExecution());
    EXPECT_TRUE(made.ok()) << made.status();
    replica = *std::move(made);
    rendezvous::WorldLink::Options link_options;
    link_options.worker_id = id;
    link_options.begin = [&network, id](const collective::WorldSpec& spec) {
      return network.Begin(id, spec);
    };
    link_options.run = [](const std::function<void()>& work) { work(); };
    const SendFunction send = [this](v1::WorkerMessage message) {
      sent.push_back(std::move(message));
    };
    link = std::make_unique<rendezvous::WorldLink>(
        link_options, send,
        [this](int64_t generation) { connected = generation; });
    options.worker_id = id;
    if (options.minibatch_size == 64) options.minibatch_size = 4;
    minibatch_size_ = options.minibatch_size;
    session = std::make_unique<TrainingSession>(
        options, TrainingSession::Deps{*replica, *link, send, environment});
    session->released = [this] { ++released; };
  }

  void Tell(const v1::MasterMessage& message) {
    if (!session->Hear(message)) session->OnMessage(message);
    if (connected > 0) session->OnConnected(std::exchange(connected, 0));
  }
  // The records [begin, end) of the first shard in the first epoch.
  void Give(int64_t begin, int64_t end) {
    v1::Task task;
    task.set_task_id(++tasks_);
    task.set_type(v1::TRAINING);
    task.mutable_range()->set_shard(CountedData::ShardName(0));
    task.mutable_range()->set_begin(begin);
    task.mutable_range()->set_end(end);
    task.mutable_range()->set_block_begin(begin);
    task.mutable_range()->set_block_end(end);
    session->AnnounceTask();
    for (auto& minibatch : data_.Minibatches(task, minibatch_size_)) {
      session->AddMinibatch(std::move(minibatch));
    }
  }
  // The last message of a kind, which is taken; null = none.
  std::unique_ptr<v1::WorkerMessage> Take(v1::WorkerMessage::MessageCase kind) {
    for (size_t i = sent.size(); i-- > 0;) {
      if (sent[i].message_case() != kind) continue;
      auto found = std::make_unique<v1::WorkerMessage>(sent[i]);
      sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(i));
      return found;
    }
    return nullptr;
  }
  // The records of the first shard and epoch that are in the model.
  std::vector<int64_t> Trained() {
    const auto trained = TrainedIds(ValuesOf(*replica));
    EXPECT_TRUE(trained.ok()) << trained.status();
    std::vector<int64_t> records;
    for (size_t i = 0; trained.ok() && i < trained->size(); ++i) {
      if ((*trained)[i]) records.push_back(static_cast<int64_t>(i));
    }
    return records;
  }

  const int64_t id;

 private:
  const CountedData data_;
  int64_t minibatch_size_ = 0;
  int64_t tasks_ = 0;

 public:
  FaultyModel model;
  TestEnvironment environment;
  std::vector<v1::WorkerMessage> sent;
  int released = 0;
  int64_t connected = 0;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<rendezvous::WorldLink> link;
  std::unique_ptr<TrainingSession> session;
};

struct WorldOptions {
  bool cold = false;
  std::string restore_from;
  int64_t cold_step = 0;
  int64_t saved_step = -1;
  bool last = false;
  bool evaluating = false;
  std::vector<int64_t> unsettled;
  int64_t shrinks = 0;
};

inline v1::MasterMessage MakePrepare(int64_t generation,
                                     const std::vector<Member*>& members,
                                     const WorldOptions& options) {
  v1::MasterMessage message;
  v1::Prepare& prepare = *message.mutable_prepare();
  prepare.set_generation(generation);
  prepare.set_urgent(true);
  prepare.set_cold(options.cold);
  prepare.set_restore_from(options.restore_from);
  prepare.set_cold_step(options.cold_step);
  prepare.set_saved_step(options.saved_step);
  prepare.set_last(options.last);
  prepare.set_evaluating(options.evaluating);
  prepare.set_shrinks(options.shrinks);
  for (const int64_t id : options.unsettled) prepare.add_unsettled(id);
  for (const Member* member : members) {
    prepare.add_members()->set_worker_id(member->id);
    prepare.mutable_members()->rbegin()->set_host("here");
  }
  return message;
}

// Makes a world of them, as the master does. They have not entered it yet.
inline void Connect(int64_t generation, const std::vector<Member*>& members,
                    const WorldOptions& options = {}) {
  const v1::MasterMessage prepare = MakePrepare(generation, members, options);
  v1::MasterMessage offers;
  offers.mutable_offers()->set_generation(generation);
  for (Member* member : members) {
    member->Tell(prepare);
    const auto offer = member->Take(v1::WorkerMessage::kOffer);
    ASSERT_NE(offer, nullptr);
    offers.mutable_offers()->add_offers(offer->offer().offer());
  }
  for (Member* member : members) member->Tell(offers);
}

// Runs all at once until each has ended or waits for somebody who is not among
// them; `stuck` is called then, once, and should let them go on.
inline void Together(const std::vector<std::function<void()>>& bodies,
                     const std::function<void()>& stuck = nullptr) {
  std::vector<std::unique_ptr<Actor>> actors;
  actors.reserve(bodies.size());
  for (const auto& body : bodies) {
    actors.push_back(std::make_unique<Actor>(body));
  }
  bool was_stuck = false;
  while (true) {
    bool ran = false;
    bool done = true;
    for (const auto& actor : actors) {
      if (actor->ready()) {
        actor->Run();
        ran = true;
      }
      done = done && actor->done();
    }
    if (done) return;
    if (ran) continue;
    ASSERT_TRUE(stuck && !was_stuck) << "they wait for ever";
    was_stuck = true;
    stuck();
  }
}

// One Work of each member, together.
inline std::vector<absl::StatusOr<WorkDone>> WorkTogether(
    const std::vector<Member*>& members,
    const std::function<void()>& stuck = nullptr) {
  std::vector<absl::StatusOr<WorkDone>> results(members.size());
  std::vector<std::function<void()>> bodies;
  for (size_t i = 0; i < members.size(); ++i) {
    bodies.emplace_back([&results, member = members[i], i] {
      results[i] = member->session->Work(1.0);
    });
  }
  Together(bodies, stuck);
  return results;
}

// Makes a world and brings its members level.
inline void Enter(int64_t generation, const std::vector<Member*>& members,
                  const WorldOptions& options = {}) {
  Connect(generation, members, options);
  for (const auto& done : WorkTogether(members)) {
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->entered);
  }
}

}  // namespace elasticdl::worker::test
