// The task manager's hand-out: which range a worker gets next, and what it
// holds.
#include <algorithm>
#include <limits>

#include "task_manager.h"

namespace elasticdl::master {

GrantResult TaskManager::Grant(absl::Time now, int64_t worker_id,
                               const TaskKinds& kinds) {
  workers_.try_emplace(worker_id);
  GrantResult result;
  result.task = GrantFrom(now, worker_id, kinds);
  if (!result.task.has_value()) result.reason = WhyNothing(kinds);
  return result;
}

std::optional<v1::Task> TaskManager::GrantFrom(absl::Time now,
                                               int64_t worker_id,
                                               const TaskKinds& kinds) {
  if (kinds.evaluation) {
    if (const auto range = evaluation_.Pop()) {
      return Hand(now, worker_id, v1::EVALUATION, *range);
    }
  }
  if (kinds.training && stop_reason_.empty()) {
    const int64_t limit = TrainingTaskLimit();
    if (limit > 0) {
      if (const auto range = training_.Pop(limit)) {
        return Hand(now, worker_id, v1::TRAINING, *range);
      }
    }
  }
  if (kinds.prediction) {
    const int64_t limit = prediction_.blocks().records_per_block();
    if (const auto range = prediction_.Pop(limit)) {
      return Hand(now, worker_id, v1::PREDICTION, *range);
    }
  }
  if (kinds.train_end && TrainEndReady()) {
    train_end_ = TrainEnd::kHeld;
    return Hand(now, worker_id, v1::TRAIN_END_CALLBACK, Range());
  }
  return std::nullopt;
}

std::optional<v1::Task> TaskManager::Hand(absl::Time now, int64_t worker_id,
                                          v1::TaskType type,
                                          const Range& range) {
  const int64_t task_id = next_task_id_++;
  held_[task_id] = Held{worker_id, type, range};
  CountHeld(type, range, 1);
  Worker& worker = workers_[worker_id];
  worker.tasks.push_back(task_id);
  // A task that waits behind another one does not set the clock.
  if (TaskInUse(worker) == task_id) clock_.Begin(worker_id, now);
  RecordGrant(worker_id, task_id, type, range);
  return MakeTask(task_id, type, range);
}

v1::Task TaskManager::MakeTask(int64_t task_id, v1::TaskType type,
                               const Range& range) const {
  v1::Task task;
  task.set_task_id(task_id);
  task.set_type(type);
  if (const RangeQueue* queue = QueueOf(type)) {
    *task.mutable_range() = queue->blocks().ToProto(range);
    task.set_shuffle_seed(queue->ShuffleSeed(range));
  }
  task.set_model_version(type == v1::EVALUATION ? evaluation_.version()
                                                : step_);
  if (type == v1::TRAINING) task.set_oldest_epoch(OldestEpoch());
  return task;
}

int32_t TaskManager::OldestEpoch() const {
  int32_t oldest = training_.epoch();
  for (const Range& range : training_.returned()) {
    oldest = std::min(oldest, range.epoch);
  }
  if (!held_epochs_.empty()) {
    oldest = std::min(oldest, held_epochs_.begin()->first);
  }
  return oldest;
}

void TaskManager::CountHeld(v1::TaskType type, const Range& range, int change) {
  num_held_[type] += change;
  if (type != v1::TRAINING) return;
  const auto it = held_epochs_.emplace(range.epoch, 0).first;
  it->second += change;
  if (it->second == 0) held_epochs_.erase(it);
}

int64_t TaskManager::TrainingTaskLimit() const {
  const int64_t whole = training_.blocks().records_per_block();
  const int64_t workers = static_cast<int64_t>(workers_.size());
  int64_t left = std::numeric_limits<int64_t>::max();
  if (training_.InLastEpoch() && training_.NumRangesLeft() < 2 * workers) {
    left = training_.NumRecordsLeft();
  }
  if (options_.max_step > 0 && options_.minibatches_are_steps) {
    left = std::min(left, StepsToHandOut() * options_.minibatch_size);
  }
  if (left <= 0 && options_.minibatches_are_steps) return 0;
  if (workers < 2 || left >= 2 * workers * whole) return std::min(whole, left);
  // Half of a fair share: what is left shrinks with every task, down to one
  // minibatch, so that nobody waits long for the last one.
  const int64_t divisor = 2 * workers * options_.minibatch_size;
  const int64_t minibatches = std::max<int64_t>(1, (left - 1) / divisor + 1);
  return std::min(whole, minibatches * options_.minibatch_size);
}

int64_t TaskManager::StepsToHandOut() const {
  int64_t steps = options_.max_step - step_;
  for (const auto& [task_id, held] : held_) {
    if (held.type != v1::TRAINING) continue;
    const int64_t records = held.range.end - held.range.begin;
    steps -= (records - 1) / options_.minibatch_size + 1;
  }
  return steps;
}

NoTask TaskManager::WhyNothing(const TaskKinds& kinds) const {
  if (Finished()) return NoTask::kAllDone;
  const bool training_held = stop_reason_.empty() && NumHeld(v1::TRAINING) > 0;
  if ((kinds.training && training_held) ||
      (kinds.evaluation && NumHeld(v1::EVALUATION) > 0) ||
      (kinds.prediction && NumHeld(v1::PREDICTION) > 0) ||
      (kinds.train_end && NumHeld(v1::TRAIN_END_CALLBACK) > 0)) {
    return NoTask::kWaitForOthers;
  }
  return TrainingDone() ? NoTask::kTrainingDone : NoTask::kOtherKindsDue;
}

bool TaskManager::TrainEndReady() const {
  return train_end_ == TrainEnd::kDue && TrainingDone() &&
         !EvaluationRunning() && !FinalEvaluationDue();
}

int TaskManager::NumHeld(v1::TaskType type) const {
  const auto it = num_held_.find(type);
  return it == num_held_.end() ? 0 : it->second;
}

int TaskManager::NumHeld(int64_t worker_id, v1::TaskType type) const {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return 0;
  const std::vector<int64_t>& tasks = it->second.tasks;
  return static_cast<int>(std::count_if(
      tasks.begin(), tasks.end(),
      [&](int64_t task_id) { return held_.at(task_id).type == type; }));
}

int64_t TaskManager::TrainingRecordsHeld(int64_t worker_id) const {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return 0;
  int64_t records = 0;
  for (const int64_t task_id : it->second.tasks) {
    const Held& held = held_.at(task_id);
    if (held.type == v1::TRAINING) records += held.range.end - held.range.begin;
  }
  return records;
}

int64_t TaskManager::NumLastTrainingRanges() const {
  return training_.InLastEpoch() ? training_.NumRangesLeft()
                                 : std::numeric_limits<int64_t>::max();
}

}  // namespace elasticdl::master
