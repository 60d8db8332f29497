#include "task_granter.h"

#include <algorithm>
#include <utility>

namespace elasticdl::master {
namespace {

// A worker holds what it trains in this time, so that a job of quick steps does
// not exchange a message for every few of them; but no more tasks than this.
constexpr absl::Duration kHandedAhead = absl::Milliseconds(100);
constexpr int kMostHanded = 16;

}  // namespace

int64_t TaskGranter::RecordsDone() const {
  const TaskSummary summary = tasks_.Summary();
  return summary.committed_records + summary.predicted_records +
         summary.quarantined_records;
}

void TaskGranter::Grant(absl::Time now, const World& world) {
  training_window_ = TrainingWindow(now, world);
  bool granted = true;
  while (granted) {
    granted = false;
    for (auto& [connection, worker] : registry_.workers()) {
      granted |= GrantTo(now, world, connection, worker);
    }
  }
}

void TaskGranter::GrantOne(absl::Time now, const World& world,
                           ConnectionId connection) {
  Worker* const worker = registry_.Find(connection);
  if (worker == nullptr) return;
  training_window_ = TrainingWindow(now, world);
  while (GrantTo(now, world, connection, *worker)) continue;
}

// How many --------------------------------------------------------------------

int TaskGranter::TrainingWindow(absl::Time now, const World& world) {
  if (world.size == 0) return options_.window;
  const auto workers = static_cast<double>(world.size);
  const double in_use = rate_.PerSecond(now) / workers *
                        absl::ToDoubleSeconds(kHandedAhead) /
                        static_cast<double>(tasks_.training_task_size());
  // Near the end nobody holds what another could train.
  const double fair =
      static_cast<double>(tasks_.NumLastTrainingRanges()) / (2 * workers);
  const double window = std::min({in_use + 1, fair, double{kMostHanded}});
  return std::max(options_.window, static_cast<int>(window));
}

bool TaskGranter::IsCareful(v1::TaskType type) const {
  // The sum over the ledger is not free, and crashes are rare.
  const bool counts = type != v1::EVALUATION && blame_.suspects_tasks();
  return blame_.IsCareful(type, counts ? RecordsDone() : 0);
}

bool TaskGranter::HasRoom(const World& world, int64_t worker_id,
                          v1::TaskType type) const {
  if (IsCareful(type)) return tasks_.NumHeld(worker_id, type) < 1;
  return WantsMore(world, worker_id, type);
}

bool TaskGranter::WantsMore(const World& world, int64_t worker_id,
                            v1::TaskType type) const {
  const int window = type == v1::TRAINING ? training_window_ : options_.window;
  if (tasks_.NumHeld(worker_id, type) < window) return true;
  if (type != v1::TRAINING || world.size == 0) return false;
  // Its share of a few steps: what it has used is known here a step later.
  const double share =
      std::max(static_cast<double>(options_.worker_batch_size),
               static_cast<double>(options_.global_batch_size) /
                   static_cast<double>(world.size));
  return static_cast<double>(tasks_.TrainingRecordsHeld(worker_id)) < 4 * share;
}

// To whom ---------------------------------------------------------------------

TaskKinds TaskGranter::KindsFor(const World& world,
                                const Worker& worker) const {
  const bool trained = tasks_.TrainingDone() && world.at_rest;
  TaskKinds kinds;
  kinds.training = !worker.waiting && !world.holds_training &&
                   (HasRoom(world, worker.id, v1::TRAINING) ||
                    (worker.starving && !IsCareful(v1::TRAINING)));
  // A worker evaluates the version it stands at: when it waits for that, or
  // when there is nothing to train.
  kinds.evaluation = (worker.waiting || trained || world.shared_model) &&
                     HasRoom(world, worker.id, v1::EVALUATION);
  kinds.prediction = HasRoom(world, worker.id, v1::PREDICTION);
  // If its worker dies before the last model is saved, that is trained again;
  // what the callback has done could not be undone.
  kinds.train_end = trained && !world.last_checkpoint_due;
  return kinds;
}

bool TaskGranter::GrantTo(absl::Time now, const World& world,
                          ConnectionId connection, Worker& worker) {
  if (!worker.ready || worker.stop_sent) return false;
  // Only members of the world have the model.
  if (world.training && !world.is_member(worker.id)) return false;
  if (worker.leaving) {
    // It may have asked before it knew that it leaves.
    if (worker.starving) SendNoMoreTasks(connection, worker);
    return false;
  }
  const GrantResult granted =
      tasks_.Grant(now, worker.id, KindsFor(world, worker));
  if (!granted.task.has_value()) {
    if (world.training && !worker.no_more_sent &&
        (worker.starving || WantsMore(world, worker.id, v1::TRAINING))) {
      SendNoMoreTasks(connection, worker);
    }
    return false;
  }
  if (granted.task->type() == v1::TRAINING) {
    worker.no_more_sent = false;
    worker.starving = false;
  }
  v1::MasterMessage message;
  *message.mutable_task() = *granted.task;
  port_.Send({connection}, std::move(message));
  return true;
}

void TaskGranter::SendNoMoreTasks(ConnectionId connection, Worker& worker) {
  worker.no_more_sent = true;
  worker.starving = false;
  v1::MasterMessage message;
  message.mutable_no_more_tasks();
  port_.Send({connection}, std::move(message));
}

}  // namespace elasticdl::master
