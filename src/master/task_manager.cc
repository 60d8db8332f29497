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
      validation_(std::move(validation)),
      prediction_(std::move(prediction)) {
  if (options_.train_end_task) train_end_ = TrainEnd::kDue;
}

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
  if (kinds.evaluation && evaluation_.has_value()) {
    RangeQueue& queue = evaluation_->queue;
    if (const auto range = queue.Pop(queue.blocks().records_per_block())) {
      return Hand(now, worker_id, v1::EVALUATION, *range);
    }
  }
  if (kinds.training && stop_reason_.empty()) {
    if (const auto range = training_.Pop(TrainingTaskLimit())) {
      return Hand(now, worker_id, v1::TRAINING, *range);
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
  ++num_held_[type];
  Worker& worker = workers_[worker_id];
  worker.tasks.push_back(task_id);
  // A task that waits behind another one does not set the clock.
  if (TaskInUse(worker) == task_id) {
    worker.in_use_since = worker.last_report = now;
  }
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
  task.set_model_version(type == v1::EVALUATION ? evaluation_->version : step_);
  return task;
}

int64_t TaskManager::TrainingTaskLimit() const {
  const int64_t whole = training_.blocks().records_per_block();
  const int64_t workers = static_cast<int64_t>(workers_.size());
  if (workers < 2 || !training_.InLastEpoch() ||
      training_.NumRangesLeft() >= 2 * workers) {
    return whole;
  }
  // Half of a fair share: what is left shrinks with every task, down to one
  // minibatch, so that nobody waits long for the last one.
  const int64_t divisor = 2 * workers * options_.minibatch_size;
  const int64_t minibatches =
      std::max<int64_t>(1, (training_.NumRecordsLeft() - 1) / divisor + 1);
  return std::min(whole, minibatches * options_.minibatch_size);
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

RangeQueue* TaskManager::QueueOf(v1::TaskType type) {
  switch (type) {
    case v1::TRAINING:
      return &training_;
    case v1::EVALUATION:
      ELASTICDL_CHECK(evaluation_.has_value());
      return &evaluation_->queue;
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
  workers_.at(worker_id).last_report = now;
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
      evaluation_->done_records += held.range.size();
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

absl::StatusOr<bool> TaskManager::Fail(absl::Time now, int64_t worker_id,
                                       int64_t task_id,
                                       absl::string_view message) {
  ELASTICDL_RETURN_IF_ERROR(CheckHeld(worker_id, task_id));
  const Held held = Drop(now, task_id);
  const bool set_aside = CountFailure(held, message);
  // Behind what else came back: trouble of the moment has time to pass.
  if (!set_aside) TakeBack(held, /*front=*/false);
  if (held.type != v1::EVALUATION) {
    v1::TaskEvent event;
    event.mutable_failed()->set_worker_id(worker_id);
    event.mutable_failed()->set_task_id(task_id);
    event.mutable_failed()->set_message(std::string(message));
    Record(event);
  }
  CheckEvaluationComplete(now);
  return set_aside;
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
    TakeBack(held, /*front=*/true);
  }
  workers_.erase(worker_id);
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
    absl::Duration& longest = longest_[held.type];
    longest = std::max(longest, now - worker.in_use_since);
  }
  worker.finished.push_back({task_id, held.range.end});
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
  --num_held_[held.type];
  Worker& worker = workers_.at(held.worker_id);
  worker.tasks.erase(
      std::find(worker.tasks.begin(), worker.tasks.end(), task_id));
  worker.in_use_since = worker.last_report = now;
  return held;
}

void TaskManager::TakeBack(const Held& held, bool front) {
  RangeQueue* queue = QueueOf(held.type);
  if (queue == nullptr) {
    train_end_ = TrainEnd::kDue;
  } else if (front) {
    queue->PushFront(held.range);
  } else {
    queue->PushBack(held.range);
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
  if (EvaluationRunning()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot evaluate version ", version, ": the evaluation of version ",
        evaluation_->version, " is still running"));
  }
  if (validation_.Empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot evaluate version ", version, ": there is no validation data"));
  }
  evaluation_.emplace(Evaluation{version, validation_});
  return absl::OkStatus();
}

void TaskManager::CancelEvaluation(absl::Time now) {
  if (!EvaluationRunning()) return;
  std::vector<int64_t> stale;
  for (const auto& [task_id, held] : held_) {
    if (held.type == v1::EVALUATION) stale.push_back(task_id);
  }
  for (const int64_t task_id : stale) Drop(now, task_id);
  evaluation_.reset();
  RestartClocks(now);
}

void TaskManager::CheckEvaluationComplete(absl::Time now) {
  if (!EvaluationRunning() || !evaluation_->queue.Empty() ||
      NumHeld(v1::EVALUATION) > 0) {
    return;
  }
  evaluation_->complete = true;
  evaluated_version_ = std::max(evaluated_version_, evaluation_->version);
  RestartClocks(now);
}

bool TaskManager::EvaluationRunning() const {
  return evaluation_.has_value() && !evaluation_->complete;
}

bool TaskManager::FinalEvaluationDue() const {
  return options_.final_evaluation && TrainingDone() && !EvaluationRunning() &&
         evaluated_version_ < step_;
}

std::optional<EvaluationProgress> TaskManager::evaluation() const {
  if (!evaluation_.has_value()) return std::nullopt;
  EvaluationProgress progress;
  progress.version = evaluation_->version;
  progress.complete = evaluation_->complete;
  progress.total_records = validation_.blocks().num_records();
  progress.done_records = evaluation_->done_records;
  progress.skipped_records = evaluation_->queue.num_set_aside();
  return progress;
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

}  // namespace elasticdl::master
