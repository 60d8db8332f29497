// Hand-out of tasks and the reports about them.
#include "task_manager.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

// A repeated report follows within the few messages that were in flight when a
// stream broke.
constexpr size_t kFinishedTasksRemembered = 8;

absl::Status Stale(int64_t worker_id, int64_t task_id) {
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", worker_id, " does not hold task ", task_id, " (any more)"));
}

absl::Status WrongType(int64_t task_id, v1::TaskType type,
                       absl::string_view report) {
  return absl::FailedPreconditionError(
      absl::StrCat("task ", task_id, " is of type ", v1::TaskType_Name(type),
                   ", which is not reported by ", report));
}

}  // namespace

absl::StatusOr<TaskManager> TaskManager::Create(TaskManagerOptions options) {
  ELASTICDL_RETURN_IF_ERROR(options.Validate());
  const int64_t block_size =
      options.minibatch_size * options.num_minibatches_per_task;
  ELASTICDL_ASSIGN_OR_RETURN(
      BlockIndex training,
      BlockIndex::Create(options.training_shards, block_size));
  ELASTICDL_ASSIGN_OR_RETURN(
      BlockIndex validation,
      BlockIndex::Create(options.validation_shards, block_size));
  ELASTICDL_ASSIGN_OR_RETURN(
      BlockIndex prediction,
      BlockIndex::Create(options.prediction_shards, block_size));
  if (options.final_evaluation && validation.num_blocks() == 0) {
    return absl::InvalidArgumentError("the validation data has no records");
  }
  const RangeQueue::Options epochs{options.num_epochs, options.shuffle,
                                   options.seed};
  return TaskManager(std::move(options),
                     RangeQueue(std::move(training), epochs),
                     RangeQueue(std::move(validation), RangeQueue::Options()),
                     RangeQueue(std::move(prediction), RangeQueue::Options()));
}

TaskManager::TaskManager(TaskManagerOptions options, RangeQueue training,
                         RangeQueue validation, RangeQueue prediction)
    : options_(std::move(options)),
      training_(std::move(training)),
      prediction_(std::move(prediction)),
      evaluation_(std::move(validation)),
      clock_(options_.task_timeout) {
  if (options_.train_end_task) train_end_ = TrainEnd::kDue;
}

RangeQueue* TaskManager::QueueOf(v1::TaskType type) {
  switch (type) {
    case v1::TRAINING:
      return &training_;
    case v1::EVALUATION:
      return &evaluation_.queue();
    case v1::PREDICTION:
      return &prediction_;
    default:
      return nullptr;
  }
}

absl::Status TaskManager::CheckHeld(int64_t worker_id, int64_t task_id) const {
  const auto it = held_.find(task_id);
  if (it == held_.end() || it->second.worker_id != worker_id) {
    return Stale(worker_id, task_id);
  }
  return absl::OkStatus();
}

v1::TaskType TaskManager::HeldType(int64_t task_id) const {
  const auto it = held_.find(task_id);
  return it == held_.end() ? v1::NONE : it->second.type;
}

bool TaskManager::WasFinished(int64_t worker_id, int64_t task_id,
                              std::optional<int64_t> end) const {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return false;
  return std::any_of(it->second.finished.begin(), it->second.finished.end(),
                     [&](const FinishedTask& task) {
                       return task.task_id == task_id &&
                              task.end == end.value_or(task.end);
                     });
}

absl::StatusOr<CommittedRange> TaskManager::Commit(absl::Time now,
                                                   int64_t worker_id,
                                                   int64_t task_id,
                                                   int64_t end) {
  CommittedRange committed;
  committed.worker_id = worker_id;
  committed.begin = committed.end = end;
  if (WasFinished(worker_id, task_id, end)) return committed;
  ELASTICDL_RETURN_IF_ERROR(CheckHeld(worker_id, task_id));
  Held& held = held_.at(task_id);
  if (held.type != v1::TRAINING) {
    return WrongType(task_id, held.type, "a commit");
  }
  if (end < held.range.begin || end > held.range.end) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", worker_id, " commits task ", task_id, " up to ", end,
        ", but what is left of it is ", held.range.begin, "-", held.range.end));
  }
  committed.epoch = held.range.epoch;
  committed.shard = training_.blocks().at(held.range.block).shard->name();
  committed.begin = held.range.begin;
  if (committed.begin == end) return committed;
  last_committed_ = held.range;
  last_committed_->end = end;
  held.range.begin = end;
  committed_records_ += end - committed.begin;
  clock_.Report(worker_id, now);
  if (held.range.size() == 0) Complete(now, task_id);
  v1::TaskEvent event;
  event.mutable_committed()->set_worker_id(worker_id);
  event.mutable_committed()->set_task_id(task_id);
  event.mutable_committed()->set_end(end);
  Record(event);
  return committed;
}

absl::StatusOr<std::vector<CommittedRange>> TaskManager::CommitNext(
    absl::Time now, int64_t worker_id, int64_t records) {
  struct Part {
    int64_t task_id;
    int64_t end;
  };
  std::vector<Part> parts;
  int64_t left = records;
  const auto worker = workers_.find(worker_id);
  if (worker != workers_.end()) {
    for (const int64_t task_id : worker->second.tasks) {
      const Held& held = held_.at(task_id);
      if (held.type != v1::TRAINING || left <= 0) continue;
      const int64_t taken = std::min(left, held.range.size());
      parts.push_back({task_id, held.range.begin + taken});
      left -= taken;
    }
  }
  if (left != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker_id, " commits ", records,
                     " records, but holds only ", records - left));
  }
  std::vector<CommittedRange> committed;
  for (const Part& part : parts) {
    ELASTICDL_ASSIGN_OR_RETURN(CommittedRange range,
                               Commit(now, worker_id, part.task_id, part.end));
    committed.push_back(std::move(range));
  }
  return committed;
}

std::optional<v1::LedgerRange> TaskManager::NextUncommitted(
    int64_t worker_id) const {
  const std::vector<v1::LedgerRange> ranges = Uncommitted(worker_id);
  if (ranges.empty()) return std::nullopt;
  return ranges.front();
}

std::vector<v1::LedgerRange> TaskManager::Uncommitted(int64_t worker_id) const {
  std::vector<v1::LedgerRange> ranges;
  const auto worker = workers_.find(worker_id);
  if (worker == workers_.end()) return ranges;
  for (const int64_t task_id : worker->second.tasks) {
    const Held& held = held_.at(task_id);
    if (held.type == v1::TRAINING) {
      ranges.push_back(training_.blocks().ToProto(held.range));
    }
  }
  return ranges;
}

absl::StatusOr<std::optional<CommittedRange>> TaskManager::CommitRange(
    absl::Time now, const v1::LedgerRange& range) {
  for (const auto& [task_id, held] : held_) {
    if (held.type != v1::TRAINING || held.range.epoch != range.epoch() ||
        held.range.begin != range.begin() ||
        training_.blocks().at(held.range.block).shard->name() !=
            range.shard()) {
      continue;
    }
    ELASTICDL_ASSIGN_OR_RETURN(
        CommittedRange committed,
        Commit(now, held.worker_id, task_id, range.end()));
    return std::make_optional(std::move(committed));
  }
  return std::nullopt;
}

std::optional<v1::Task> TaskManager::Sample() const {
  if (!last_committed_.has_value()) return std::nullopt;
  Range range = *last_committed_;
  range.end = std::min(range.end, range.begin + options_.minibatch_size);
  v1::Task task;
  task.set_type(v1::TRAINING);
  *task.mutable_range() = training_.blocks().ToProto(range);
  task.set_shuffle_seed(training_.ShuffleSeed(range));
  return task;
}

absl::StatusOr<bool> TaskManager::Done(absl::Time now, int64_t worker_id,
                                       int64_t task_id, int64_t output_bytes) {
  if (WasFinished(worker_id, task_id, std::nullopt)) return false;
  ELASTICDL_RETURN_IF_ERROR(CheckHeld(worker_id, task_id));
  const Held held = held_.at(task_id);
  if (held.type == v1::TRAINING) {
    return WrongType(task_id, held.type, "task_done");
  }
  Complete(now, task_id);
  switch (held.type) {
    case v1::EVALUATION:
      evaluation_.Done(held.range.size());
      CheckEvaluationComplete(now);
      break;
    case v1::PREDICTION:
      predicted_records_ += held.range.size();
      output_bytes_[worker_id] = output_bytes;
      break;
    default:
      train_end_ = TrainEnd::kDone;
  }
  if (held.type != v1::EVALUATION) {
    v1::TaskEvent event;
    event.mutable_done()->set_worker_id(worker_id);
    event.mutable_done()->set_task_id(task_id);
    event.mutable_done()->set_output_bytes(output_bytes);
    Record(event);
  }
  return true;
}

int TaskManager::WorkerLost(absl::Time now, int64_t worker_id, WorkerLoss loss,
                            absl::string_view message) {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return 0;
  return WorkerLost(
      now, worker_id,
      loss == WorkerLoss::kCrashed ? TaskInUse(it->second) : int64_t{0},
      message);
}

int TaskManager::WorkerLost(absl::Time now, int64_t worker_id, int64_t suspect,
                            absl::string_view message) {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return 0;
  const std::vector<int64_t> tasks = it->second.tasks;
  // The oldest last, so that it is first in the queue.
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    const Held held = Drop(now, *task);
    if (*task == suspect &&
        CountFailure(held,
                     absl::StrCat("worker ", worker_id, " crashed",
                                  message.empty() ? "" : ": ", message))) {
      continue;
    }
    TakeBack(held);
  }
  workers_.erase(worker_id);
  clock_.Forget(worker_id);
  v1::TaskEvent event;
  event.mutable_lost()->set_worker_id(worker_id);
  event.mutable_lost()->set_suspect(suspect);
  event.mutable_lost()->set_message(std::string(message));
  Record(event);
  CheckEvaluationComplete(now);
  return static_cast<int>(tasks.size());
}

void TaskManager::Complete(absl::Time now, int64_t task_id) {
  const Held& held = held_.at(task_id);
  Worker& worker = workers_.at(held.worker_id);
  if (TaskInUse(worker) == task_id) {
    clock_.Completed(held.worker_id, held.type, now);
  }
  worker.finished.push_back({task_id, held.range.end, held.type});
  if (worker.finished.size() > kFinishedTasksRemembered) {
    worker.finished.pop_front();
  }
  Drop(now, task_id);
}

TaskManager::Held TaskManager::Drop(absl::Time now, int64_t task_id) {
  const auto it = held_.find(task_id);
  ELASTICDL_CHECK(it != held_.end());
  const Held held = it->second;
  held_.erase(it);
  CountHeld(held.type, held.range, -1);
  Worker& worker = workers_.at(held.worker_id);
  worker.tasks.erase(
      std::find(worker.tasks.begin(), worker.tasks.end(), task_id));
  clock_.Begin(held.worker_id, now);
  return held;
}

void TaskManager::TakeBack(const Held& held) {
  RangeQueue* queue = QueueOf(held.type);
  if (queue == nullptr) {
    train_end_ = TrainEnd::kDue;
  } else {
    queue->PushFront(held.range);
  }
}

bool TaskManager::CountFailure(const Held& held, absl::string_view message) {
  RangeQueue* queue = QueueOf(held.type);
  const int failures = queue == nullptr ? ++train_end_failures_
                                        : queue->CountFailure(held.range);
  if (failures < options_.task_max_failures) return false;
  QuarantinedRange bad;
  bad.type = held.type;
  bad.failures = failures;
  bad.last_error = std::string(message);
  if (queue == nullptr) {
    train_end_ = TrainEnd::kFailed;
  } else {
    bad.range = queue->blocks().ToProto(held.range);
    queue->SetAside(held.range);
  }
  quarantined_.push_back(std::move(bad));
  return true;
}

absl::Status TaskManager::SetStep(int64_t step) {
  if (options_.max_step > 0 && step > options_.max_step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, " is beyond max_step ", options_.max_step));
  }
  if (step > step_) {
    step_ = step;
    v1::TaskEvent event;
    event.set_step(step);
    Record(event);
  }
  StopAtMaxStep();
  return absl::OkStatus();
}

void TaskManager::StopAtMaxStep() {
  if (options_.max_step > 0 && step_ >= options_.max_step) {
    StopTraining(absl::StrCat("max_step ", options_.max_step, " reached"));
  }
}

void TaskManager::StopTraining(absl::string_view reason) {
  if (TrainingDone()) return;
  stop_reason_ = reason.empty() ? "stopped" : std::string(reason);
  v1::TaskEvent event;
  event.set_stopped(stop_reason_);
  Record(event);
}

absl::Status TaskManager::StartEvaluation(int64_t version) {
  return evaluation_.Start(version);
}

void TaskManager::CancelEvaluation(absl::Time now) {
  if (!EvaluationRunning()) return;
  std::vector<int64_t> stale;
  for (const auto& [task_id, held] : held_) {
    if (held.type == v1::EVALUATION) stale.push_back(task_id);
  }
  for (const int64_t task_id : stale) Drop(now, task_id);
  evaluation_.Cancel();
  RestartClocks(now);
}

void TaskManager::CheckEvaluationComplete(absl::Time now) {
  // Training goes on: nobody was silent on its task while others evaluated.
  if (evaluation_.CompleteIfDone(NumHeld(v1::EVALUATION))) RestartClocks(now);
}

bool TaskManager::FinalEvaluationDue() const {
  return options_.final_evaluation && TrainingDone() && !EvaluationRunning() &&
         evaluation_.evaluated_version() < step_;
}

bool TaskManager::TrainingDone() const {
  return !stop_reason_.empty() ||
         (training_.Empty() && NumHeld(v1::TRAINING) == 0);
}

bool TaskManager::Finished() const {
  return TrainingDone() && prediction_.Empty() &&
         NumHeld(v1::PREDICTION) == 0 && !EvaluationRunning() &&
         !FinalEvaluationDue() && train_end_ != TrainEnd::kDue &&
         train_end_ != TrainEnd::kHeld;
}

// Who is overdue --------------------------------------------------------------

int64_t TaskManager::TaskInUse(const Worker& worker) const {
  // Training waits while the worker does anything else.
  for (const int64_t task_id : worker.tasks) {
    if (held_.at(task_id).type != v1::TRAINING) return task_id;
  }
  return worker.tasks.empty() ? 0 : worker.tasks.front();
}

std::optional<OverdueTask> TaskManager::Watched(int64_t worker_id,
                                                const Worker& worker) const {
  const int64_t task_id = TaskInUse(worker);
  if (task_id == 0) return std::nullopt;
  OverdueTask task;
  task.worker_id = worker_id;
  task.task_id = task_id;
  task.type = held_.at(task_id).type;
  task.limit = clock_.Limit(task.type);
  // Its holder may be waiting for the evaluation; what is left of a training
  // that was stopped is not for anybody.
  if (task.type == v1::TRAINING &&
      (EvaluationRunning() || !stop_reason_.empty())) {
    return std::nullopt;
  }
  return task;
}

std::vector<OverdueTask> TaskManager::Expire(absl::Time now) const {
  std::vector<OverdueTask> overdue;
  for (const auto& [worker_id, worker] : workers_) {
    std::optional<OverdueTask> task = Watched(worker_id, worker);
    if (!task.has_value()) continue;
    task->silent = now - clock_.LastReport(worker_id);
    if (task->silent >= task->limit) overdue.push_back(*task);
  }
  return overdue;
}

absl::Time TaskManager::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [worker_id, worker] : workers_) {
    const std::optional<OverdueTask> task = Watched(worker_id, worker);
    if (task.has_value()) {
      next = std::min(next, clock_.LastReport(worker_id) + task->limit);
    }
  }
  return next;
}

}  // namespace elasticdl::master
