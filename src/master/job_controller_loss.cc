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
  const auto known = connection_of_.find(worker.id);
  if (known != connection_of_.end() && known->second == connection) {
    connection_of_.erase(known);
  }
  if (!worker.stop_sent) {
    const std::string reason =
        status.ok() ? "closed its stream" : std::string(status.message());
    // A pod of ours will say why it ended.
    const bool wait = options_.has_pods && !ending_.has_value();
    Depart(now, worker.id,
           wait ? std::nullopt : std::make_optional(WorkerLoss::kCrashed),
           reason);
  }
  // It cannot hear any more that it is to end.
  if (ending_.has_value() && !status.ok()) {
    output_.KillWorker(worker.id, std::string(status.message()));
  }
  Advance(now);
}

void JobController::OnWorkerEnded(absl::Time now, int64_t worker_id,
                                  const WorkerEnd& end) {
  const WorkerLoss loss =
      end.crashed ? WorkerLoss::kCrashed : WorkerLoss::kPreempted;
  // It ended while there was no master: it need not be waited for.
  if (resumable_.erase(worker_id) != 0) EndResumeIfComplete(now);
  if (const auto gone = gone_.find(worker_id); gone != gone_.end()) {
    if (!gone->second.loss.has_value()) {
      gone->second.loss = loss;
      gone->second.reason = end.reason;
      FinishGone(now);
    }
  }
  if (const auto found = connection_of_.find(worker_id);
      found != connection_of_.end()) {
    // The process is gone before its stream: do not wait for that.
    const ConnectionId connection = found->second;
    const bool expected = workers_.at(connection).stop_sent;
    output_.Close(connection, absl::UnavailableError("process ended"));
    workers_.erase(connection);
    connection_of_.erase(found);
    if (!expected) Depart(now, worker_id, loss, end.reason);
  }
  Advance(now);
}

void JobController::Depart(absl::Time now, int64_t worker_id,
                           std::optional<WorkerLoss> loss,
                           const std::string& reason) {
  connection_of_.erase(worker_id);
  Gone gone;
  // Who holds no data has none in a step that is not settled: a joiner that
  // dies before it is level.
  gone.settled = !IsTraining() || tasks_.NumHeld(worker_id, v1::TRAINING) == 0;
  gone.loss = loss;
  gone.reason = reason;
  gone.deadline = now + options_.end_grace;
  gone_[worker_id] = gone;
  if (!IsTraining()) {
    FinishGone(now);
    return;
  }
  const bool had_level = membership_.HasLevelMember();
  const auto decisions = membership_.Lost(now, worker_id, reason);
  // Without a model there is nothing to settle. (While workers come back to a
  // new master, the membership does not know of theirs yet.)
  if (!had_level && !waiting_.has_value()) gone_[worker_id].settled = true;
  Execute(now, had_level, decisions);
}

void JobController::FinishGone(absl::Time now) {
  for (auto it = gone_.begin(); it != gone_.end();) {
    if (!it->second.settled || !it->second.loss.has_value()) {
      ++it;
      continue;
    }
    const int64_t id = it->first;
    const Gone gone = it->second;
    it = gone_.erase(it);
    committed_totals_.erase(id);
    LoseWorker(now, id, *gone.loss, gone.reason);
    RecordGone(id);
  }
  if (!cut_back_due_ || !gone_.empty()) return;
  cut_back_due_ = false;
  // With the last replica goes the model.
  if (!tasks_.Finished()) CutBackToCheckpoint(now);
  for (auto& [connection, worker] : workers_) {
    worker.training_done_sent = false;
    worker.waiting = false;
  }
  const std::vector<rendezvous::MembershipDecision> decisions =
      std::move(held_back_);
  held_back_.clear();
  for (const auto& decision : decisions) Execute(now, decision);
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
  committed_totals_.clear();
  saved_step_ = std::min(saved_step_, ledger->step());
  evaluation_.CutBack(now, ledger->step());
  if (before == ledger->step()) return;
  output_.OnCutBack(ledger->step());
  output_.OnMessage(absl::StrCat("the model of step ", before,
                                 " is lost; training continues from step ",
                                 ledger->step()));
}

}  // namespace elasticdl::master
