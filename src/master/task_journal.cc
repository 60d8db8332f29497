// Changes of the tasks that a journal holds, and how they are repeated.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "task_manager.h"

namespace elasticdl::master {
namespace {

absl::Status DoesNotFit(absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("the journal does not fit the data of this job: ", why));
}

// More evaluation tasks than a master can hand out between two others.
constexpr int64_t kIdsOfOneMaster = int64_t{1} << 32;

}  // namespace

void TaskManager::BeginNewIds() {
  next_task_id_ += kIdsOfOneMaster;
  v1::TaskEvent event;
  event.set_first_task_id(next_task_id_);
  Record(event);
}

void TaskManager::RecordGrant(int64_t worker_id, int64_t task_id,
                              v1::TaskType type, const Range& range) const {
  if (!recorder_ || type == v1::EVALUATION) return;
  v1::TaskEvent event;
  v1::TaskEvent::Granted& granted = *event.mutable_granted();
  granted.set_worker_id(worker_id);
  granted.set_task_id(task_id);
  granted.set_type(type);
  granted.set_epoch(range.epoch);
  granted.set_begin(range.begin);
  granted.set_end(range.end);
  Record(event);
}

absl::Status TaskManager::ApplyGrant(absl::Time now,
                                     const v1::TaskEvent::Granted& event) {
  if (event.task_id() < next_task_id_) {
    return DoesNotFit(
        absl::StrCat("task ", event.task_id(), " is granted twice"));
  }
  // Numbers in between went to evaluations.
  next_task_id_ = event.task_id();
  Range range;
  if (event.type() == v1::TRAIN_END_CALLBACK) {
    train_end_ = TrainEnd::kHeld;
  } else if (event.type() != v1::TRAINING && event.type() != v1::PREDICTION) {
    return DoesNotFit(absl::StrCat("task ", event.task_id(), " has no type"));
  } else {
    const auto popped = QueueOf(event.type())->Pop(event.end() - event.begin());
    if (!popped.has_value() || popped->epoch != event.epoch() ||
        popped->begin != event.begin() || popped->end != event.end()) {
      return DoesNotFit(absl::StrCat(
          "task ", event.task_id(), " was ", event.begin(), "-", event.end(),
          " of epoch ", event.epoch(), ", here it is something else"));
    }
    range = *popped;
  }
  Hand(now, event.worker_id(), event.type(), range);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CommittedRange>> TaskManager::Apply(
    absl::Time now, const v1::TaskEvent& event) {
  switch (event.event_case()) {
    case v1::TaskEvent::kGranted:
      ELASTICDL_RETURN_IF_ERROR(ApplyGrant(now, event.granted()));
      break;
    case v1::TaskEvent::kCommitted: {
      const v1::TaskEvent::Committed& committed = event.committed();
      auto range = Commit(now, committed.worker_id(), committed.task_id(),
                          committed.end());
      if (!range.ok()) return DoesNotFit(range.status().message());
      return std::make_optional(*std::move(range));
    }
    case v1::TaskEvent::kDone: {
      const auto done =
          Done(now, event.done().worker_id(), event.done().task_id(),
               event.done().output_bytes());
      if (!done.ok()) return DoesNotFit(done.status().message());
      break;
    }
    case v1::TaskEvent::kLost:
      WorkerLost(now, event.lost().worker_id(), event.lost().suspect(),
                 event.lost().message());
      break;
    case v1::TaskEvent::kStep:
      ELASTICDL_RETURN_IF_ERROR(SetStep(event.step()));
      break;
    case v1::TaskEvent::kStopped:
      StopTraining(event.stopped());
      break;
    case v1::TaskEvent::kEvaluated:
      evaluation_.SetEvaluated(
          std::max(evaluation_.evaluated_version(), event.evaluated()));
      break;
    case v1::TaskEvent::kCutBack: {
      const absl::Status cut = CutBack(now, event.cut_back());
      if (!cut.ok()) return DoesNotFit(cut.message());
      break;
    }
    case v1::TaskEvent::kFirstTaskId:
      next_task_id_ = std::max(next_task_id_, event.first_task_id());
      break;
    // Not recorded any more.
    case v1::TaskEvent::kFailed:
    case v1::TaskEvent::EVENT_NOT_SET:
      return DoesNotFit("an event of another version");
  }
  return std::optional<CommittedRange>();
}

std::vector<v1::Task> TaskManager::HeldSince(int64_t worker_id,
                                             int64_t after) const {
  std::vector<v1::Task> tasks;
  const auto worker = workers_.find(worker_id);
  if (worker == workers_.end()) return tasks;
  for (const int64_t task_id : worker->second.tasks) {
    if (task_id <= after) continue;
    const Held& held = held_.at(task_id);
    tasks.push_back(MakeTask(task_id, held.type, held.range));
  }
  return tasks;
}

std::vector<int64_t> TaskManager::Holders() const {
  std::vector<int64_t> holders;
  for (const auto& [worker_id, worker] : workers_) {
    if (!worker.tasks.empty()) holders.push_back(worker_id);
  }
  return holders;
}

}  // namespace elasticdl::master
