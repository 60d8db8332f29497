// What the controller does about workers that are lost: who is to blame, where
// the model falls back to.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "job_controller.h"

namespace elasticdl::master {

void JobController::OnClosed(absl::Time now, ConnectionId connection,
                             const absl::Status& status) {
  const auto found = workers_.find(connection);
  if (found == workers_.end()) return;
  const WorkerState worker = found->second;
  workers_.erase(found);
  if (!worker.leaving && !worker.stop_sent) {
    const std::string reason =
        status.ok() ? "closed its stream" : std::string(status.message());
    if (options_.has_pods && !ending_.has_value()) {
      unexplained_[worker.id] = {now + options_.end_grace, reason};
    } else {
      LoseWorker(now, worker.id, WorkerLoss::kCrashed, reason);
    }
  }
  Advance(now);
}

void JobController::OnWorkerEnded(absl::Time now, int64_t worker_id,
                                  const WorkerEnd& end) {
  bool known = unexplained_.erase(worker_id) > 0;
  for (auto it = workers_.begin(); it != workers_.end(); ++it) {
    if (it->second.id != worker_id) continue;
    // The process is gone before its stream: do not wait for that.
    known = !it->second.leaving && !it->second.stop_sent;
    output_.Close(it->first, absl::UnavailableError("process ended"));
    workers_.erase(it);
    break;
  }
  if (known) {
    LoseWorker(now, worker_id,
               end.crashed ? WorkerLoss::kCrashed : WorkerLoss::kPreempted,
               end.reason);
  }
  Advance(now);
}

void JobController::LoseWorker(absl::Time now, int64_t worker_id,
                               WorkerLoss loss, const std::string& reason) {
  output_.OnWorkerLost(worker_id, reason);
  const bool crashed = loss == WorkerLoss::kCrashed;
  // A crash may come from the task in use or from one that was read ahead:
  // nobody is blamed before it happens again with one task alone.
  const bool ambiguous = tasks_.NumHeld(worker_id, v1::TRAINING) > 1 ||
                         tasks_.NumHeld(worker_id, v1::EVALUATION) > 1 ||
                         tasks_.NumHeld(worker_id, v1::PREDICTION) > 1;
  const int taken_back = tasks_.WorkerLost(
      now, worker_id, ambiguous ? WorkerLoss::kPreempted : loss, reason);
  if (crashed) {
    careful_until_ =
        std::max(careful_until_,
                 RecordsDone() + taken_back * options_.tasks.minibatch_size *
                                     options_.tasks.num_minibatches_per_task);
    careful_evaluation_ = evaluation_.running();
  }
  if (crashed) {
    ++crashes_without_commit_;
    ++unproven_crashes_;
    // Its task takes the blame, unless nothing works at all, or the crashes go
    // on without any task that could be set aside for them.
    const int64_t to_convict = options_.tasks.task_max_failures + 1;
    if (taken_back > 0 && crashes_without_commit_ <= to_convict &&
        unproven_crashes_ <= 2 * to_convict) {
      blamed_.insert(worker_id);
    }
  }
  ReportQuarantined();
  // With the only replica goes the model.
  if (IsTraining() && !tasks_.Finished()) CutBackToCheckpoint(now);
}

int64_t JobController::RecordsDone() const {
  const TaskSummary summary = tasks_.Summary();
  return summary.committed_records + summary.predicted_records +
         summary.quarantined_records;
}

bool JobController::careful(v1::TaskType type) const {
  if (type == v1::EVALUATION) return careful_evaluation_;
  return careful_until_ > 0 && RecordsDone() < careful_until_;
}

void JobController::ReportQuarantined() {
  const std::vector<QuarantinedRange> all = tasks_.Summary().quarantined;
  for (; reported_quarantined_ < all.size(); ++reported_quarantined_) {
    const QuarantinedRange& bad = all[reported_quarantined_];
    // Others were set aside by the run whose ledger this one has restored.
    if (bad.failures == 0) continue;
    unproven_crashes_ =
        std::max<int64_t>(0, unproven_crashes_ - (bad.failures + 1));
    output_.OnQuarantined(bad);
  }
}

void JobController::CutBackToCheckpoint(absl::Time now) {
  const v1::Ledger* ledger = &first_ledger_;
  for (auto it = ledgers_.rbegin(); it != ledgers_.rend(); ++it) {
    if (options_.find_checkpoint(it->first).has_value()) {
      ledger = &it->second;
      break;
    }
  }
  const int64_t before = tasks_.step();
  const absl::Status status = tasks_.CutBack(now, *ledger);
  if (!status.ok()) {
    LogWarning("falling back to step ", ledger->step(), ": ", status.message());
    return;
  }
  evaluation_.CutBack(now, ledger->step());
  if (before == ledger->step()) return;
  output_.OnCutBack(ledger->step());
  output_.OnMessage(absl::StrCat("the model of step ", before,
                                 " is lost; training continues from step ",
                                 ledger->step()));
}

}  // namespace elasticdl::master
