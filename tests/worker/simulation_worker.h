// The processes of a simulation: what a worker has instead of threads, disks
// and a network.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/late_ledger.h"
#include "elasticdl/checkpoint/live_arrays.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/keep/kept_reader.h"
#include "environment.h"
#include "simulation.h"

namespace elasticdl::worker::test {

inline constexpr char kDisk[] = "disk";

// The weights of a CountingModel.
inline absl::Span<const float> Weights(const checkpoint::NamedTensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.bytes.data()),
          tensor.bytes.size() / sizeof(float)};
}

inline int64_t VersionOf(const std::string& path) {
  return std::stoll(path.substr(path.rfind('-') + 1));
}

class Simulation::SimClock : public Clock {
 public:
  explicit SimClock(const absl::Time& now) : now_(now) {}
  absl::Time Now() const override { return now_; }
  absl::Time WallNow() const override { return now_; }

 private:
  const absl::Time& now_;
};

class Simulation::SimQueue : public EventQueue {
 public:
  void Push(Event event) override { events_.push_back(std::move(event)); }
  std::optional<Event> Pop(absl::Duration timeout) override {
    if (timeout == absl::ZeroDuration()) {
      // Between two steps anything may happen.
      Actor::Wait([] { return true; });
    } else {
      Actor::Wait([this] { return !events_.empty(); });
    }
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  bool empty() const override { return events_.empty(); }

 private:
  std::deque<Event> events_;
};

// One process, and its stream to the master.
struct Simulation::Worker {
  int64_t id = 0;
  ConnectionId connection = 0;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<SimEnvironment> environment;
  SimQueue events;
  std::unique_ptr<JobRunner> runner;
  std::unique_ptr<Actor> actor;
  std::deque<std::function<void()>> link_work;
  std::deque<v1::WorkerMessage> to_master;
  std::deque<Delivery> to_worker;
  // The ledgers that came, as the audit had them, by step.
  std::map<int64_t, std::shared_ptr<const TrainedSet>> ledgers;
  struct Save {
    checkpoint::OwnedSnapshot snapshot;
    checkpoint::Saver::Done done;
    TrainedSet trained;
    // It takes until this action at least.
    int64_t ready_at = 0;
    // Of one that is not a copy: what was read of each tensor, and from where
    // on to go on.
    std::vector<std::string> read;
    size_t tensor = 0;

    // All tensors: variables, then slots.
    std::vector<checkpoint::NamedTensor*> Tensors() {
      std::vector<checkpoint::NamedTensor*> tensors;
      for (auto& tensor : snapshot.snapshot.variables) {
        tensors.push_back(&tensor);
      }
      for (auto& tensor : snapshot.snapshot.slots) tensors.push_back(&tensor);
      return tensors;
    }
    bool live() const { return snapshot.snapshot.live != nullptr; }
  };
  std::deque<Save> saves;
  bool stream_open = false;
  // Before it, what a worker says goes to a stream that is broken.
  bool welcome = false;
  bool leaving = false;
  bool hangs = false;
  // The process has ended; with this code, or by a signal.
  bool ended = false;
  std::optional<int> exit_code;
  std::string end_reason;
  bool pod_end_told = false;
  // A descriptor of its state, as /proc would give it while the process lives.
  Fd memory;
  std::vector<float> last_weights;
};

class Simulation::SimSaver : public checkpoint::Saver {
 public:
  SimSaver(Simulation& simulation, Worker& worker)
      : simulation_(simulation), worker_(worker) {}
  LiveRule live_rule() const override {
    LiveRule rule;
    if (simulation_.options_.live_saves) rule.least_bytes = 1;
    rule.options.slice_bytes = 128;
    // Nobody could end the wait of an actor.
    rule.options.most_aside_bytes = std::numeric_limits<size_t>::max();
    return rule;
  }
  void Submit(checkpoint::OwnedSnapshot snapshot, Done done) override {
    const int64_t step = snapshot.snapshot.version;
    TrainedSet trained;
    if (snapshot.snapshot.live == nullptr) {
      trained = *worker_.ledgers.at(step);
      simulation_.CheckModel(absl::StrCat("the checkpoint of step ", step),
                             Weights(snapshot.snapshot.variables.at(0)),
                             trained);
    }
    // The first is being written; of others the newest waits.
    while (worker_.saves.size() > 1) {
      Worker::Save overtaken = std::move(worker_.saves.back());
      worker_.saves.pop_back();
      overtaken.done(absl::CancelledError("overtaken"));
    }
    Worker::Save save;
    save.snapshot = std::move(snapshot);
    save.done = std::move(done);
    save.trained = std::move(trained);
    save.ready_at = simulation_.WhenSaved();
    worker_.saves.push_back(std::move(save));
  }
  absl::Status Flush(absl::Duration) override {
    Actor::Wait([this] { return worker_.saves.empty(); });
    return absl::OkStatus();
  }

 private:
  Simulation& simulation_;
  Worker& worker_;
};

class Simulation::SimKeptStates : public master::KeptStates {
 public:
  explicit SimKeptStates(Simulation& simulation) : simulation_(simulation) {}
  void Keep(int64_t worker_id, pid_t, int) override {
    Worker* const worker = Find(worker_id);
    if (worker != nullptr && worker->memory.valid()) {
      kept_[worker_id] = Fd(dup(worker->memory.get()));
    }
  }
  std::vector<int64_t> Workers() const override {
    std::vector<int64_t> ids;
    for (const auto& [id, memory] : kept_) ids.push_back(id);
    return ids;
  }
  bool HasEnded(int64_t worker_id) const override {
    const Worker* const worker = Find(worker_id);
    return worker == nullptr || worker->ended;
  }
  absl::StatusOr<Kept> Look(int64_t worker_id) const override {
    const auto found = kept_.find(worker_id);
    if (found == kept_.end()) return absl::NotFoundError("nothing is kept");
    ELASTICDL_ASSIGN_OR_RETURN(const keep::KeptReader reader,
                               keep::KeptReader::Open(found->second));
    return Kept{worker_id, absl::StrCat("/proc/self/fd/", found->second.get()),
                reader.facts()};
  }
  void Drop(int64_t worker_id) override { kept_.erase(worker_id); }

 private:
  Worker* Find(int64_t worker_id) const {
    for (const auto& worker : simulation_.workers_) {
      if (worker->id == worker_id) return worker.get();
    }
    return nullptr;
  }

  Simulation& simulation_;
  std::map<int64_t, Fd> kept_;
};

class SimSource : public MinibatchSource {
 public:
  SimSource(const CountedData& data, int64_t minibatch_size, Sink sink)
      : data_(data), minibatch_size_(minibatch_size), sink_(std::move(sink)) {}
  void Add(v1::Task task) override {
    for (auto& minibatch : data_.Minibatches(task, minibatch_size_)) {
      sink_(std::move(minibatch));
    }
  }
  void Release() override {}
  void Stop() override {}

 private:
  const CountedData& data_;
  const int64_t minibatch_size_;
  const Sink sink_;
};

class Simulation::SimEnvironment : public Environment {
 public:
  SimEnvironment(Simulation& simulation, Worker& worker)
      : simulation_(simulation), worker_(worker) {}
  const Clock& clock() override { return *simulation_.clock_; }
  std::unique_ptr<MinibatchSource> MakePipeline(
      const PipelineOptions& options, model::Model&, data::DataReader&,
      MinibatchSource::Sink sink) override {
    return std::make_unique<SimSource>(simulation_.options_.data,
                                       options.minibatch_size, std::move(sink));
  }
  std::unique_ptr<checkpoint::Saver> MakeSaver(
      const std::string&, const checkpoint::SaveOptions&) override {
    return std::make_unique<SimSaver>(simulation_, worker_);
  }
  absl::StatusOr<checkpoint::Loaded> LoadCheckpoint(
      const std::string& path, const checkpoint::LoadOptions& options) override;
  std::unique_ptr<rendezvous::WorldLink> MakeLink(
      const rendezvous::WorldLink::Options& options,
      std::function<void(v1::WorkerMessage)> send,
      std::function<void(int64_t)> connected) override {
    rendezvous::WorldLink::Options here = options;
    here.begin = [this](const collective::WorldSpec& spec) {
      return simulation_.network_.Begin(worker_.id, spec);
    };
    here.run = [this](std::function<void()> work) {
      worker_.link_work.push_back(std::move(work));
    };
    return std::make_unique<rendezvous::WorldLink>(here, std::move(send),
                                                   std::move(connected));
  }
  std::unique_ptr<elastic::Watchdog> MakeWatchdog(
      absl::Duration, elastic::Watchdog::Report) override {
    return nullptr;
  }

 private:
  Simulation& simulation_;
  Worker& worker_;
};

}  // namespace elasticdl::worker::test
