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
  const Worker* found = registry_.Find(connection);
  if (found == nullptr) return;
  const Worker worker = *found;
  registry_.Remove(connection);
  activities_.Remove(worker.id);
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
    port_.KillWorker(worker.id, std::string(status.message()));
  }
  // It came back to a new master, but is not waited for any more.
  EndResumeIfComplete(now);
  Advance(now);
}

void JobController::OnWorkerEnded(absl::Time now, int64_t worker_id,
                                  const WorkerEnd& end) {
  const WorkerLoss loss =
      end.crashed ? WorkerLoss::kCrashed : WorkerLoss::kPreempted;
  const Worker* const known = registry_.FindById(worker_id);
  const bool released = known != nullptr
                            ? known->stop_sent
                            : departed_.all().count(worker_id) == 0;
  // It ended while there was no master: it need not be waited for.
  if (resumption_.Take(worker_id)) EndResumeIfComplete(now);
  if (departed_.Explain(worker_id, loss, end.reason)) FinishDeparted(now);
  if (const Worker* worker = registry_.FindById(worker_id)) {
    // The process is gone before its stream: do not wait for that.
    const ConnectionId connection = registry_.ConnectionOf(worker_id);
    const bool expected = worker->stop_sent;
    port_.Close(connection, absl::UnavailableError("process ended"));
    registry_.Remove(connection);
    if (!expected) Depart(now, worker_id, loss, end.reason);
    EndResumeIfComplete(now);
  }
  // What a lost one has left may be the newest, if all others are lost, too.
  if (released && options_.kept_states != nullptr && !heritage_.has_value()) {
    options_.kept_states->Drop(worker_id);
  }
  Advance(now);
}

void JobController::Depart(absl::Time now, int64_t worker_id,
                           std::optional<WorkerLoss> loss,
                           const std::string& reason) {
  activities_.Remove(worker_id);
  DepartedWorkers::Departed departed;
  // Who holds no data has none in a step that is not settled: a joiner that
  // dies before it is level.
  departed.settled =
      !HasWorld() || tasks_.NumHeld(worker_id, v1::TRAINING) == 0;
  departed.loss = loss;
  departed.reason = reason;
  departed.deadline = now + options_.end_grace;
  AddDeparted(worker_id, departed);
  if (HasServers()) servers_->OnLost(now, worker_id);
  if (!HasWorld()) {
    FinishDeparted(now);
    return;
  }
  const bool had_level = membership().HasLevelMember();
  if (options_.kept_states != nullptr && !membership().IsLevel(worker_id) &&
      !ChoosesHeritage()) {
    options_.kept_states->Drop(worker_id);
  }
  world_.OnLoss();
  const auto decisions = membership().Lost(now, worker_id, reason);
  // Without a model there is nothing to settle. (While workers come back to a
  // new master, the membership does not know of theirs yet.)
  if (!had_level && !resumption_.waiting()) departed_.Settle(worker_id);
  Execute(now, had_level, decisions);
}

void JobController::FinishDeparted(absl::Time now) {
  for (const auto& [id, departed] : departed_.TakeClosed()) {
    committed_totals_.erase(id);
    LoseWorker(now, id, *departed.loss, departed.reason);
    RecordGone(id);
  }
  // The ledger can only fall back when all that was handed out is back.
  if (!cut_back_due_ || searching_ || !departed_.empty()) return;
  if (tasks_.Finished()) return EndCutBack(now);
  // With the last replica goes the model.
  SearchCheckpoint(tasks_.step(), /*at_base=*/false);
}

void JobController::LoseWorker(absl::Time now, int64_t worker_id,
                               WorkerLoss loss, const std::string& reason) {
  observer_.OnWorkerLost(worker_id, reason);
  const bool crashed = loss == WorkerLoss::kCrashed;
  // A crash may come from the task in use or from one that was read ahead:
  // nobody is blamed before it happens again with one task alone.
  const bool ambiguous = tasks_.NumHeld(worker_id, v1::TRAINING) > 1 ||
                         tasks_.NumHeld(worker_id, v1::EVALUATION) > 1 ||
                         tasks_.NumHeld(worker_id, v1::PREDICTION) > 1;
  const int taken_back = tasks_.WorkerLost(
      now, worker_id, ambiguous ? WorkerLoss::kPreempted : loss, reason);
  if (crashed) {
    blame_.BeCareful(
        granter_.RecordsDone() + taken_back * options_.tasks.minibatch_size *
                                     options_.tasks.num_minibatches_per_task,
        evaluation_.running());
    blame_.OnCrash(worker_id, taken_back);
    heirs_.OnCrash(worker_id);
  }
  ReportQuarantined();
}

void JobController::ReportQuarantined() {
  const std::vector<QuarantinedRange> all = tasks_.Summary().quarantined;
  for (; reported_quarantined_ < all.size(); ++reported_quarantined_) {
    const QuarantinedRange& bad = all[reported_quarantined_];
    // Others were set aside by the run whose ledger this one has restored.
    if (bad.failures == 0) continue;
    blame_.OnQuarantined(bad.failures);
    if (HasServers()) servers_->OnQuarantined(bad.range);
    observer_.OnQuarantined(bad);
  }
}

// Until the answer comes, no world is announced, and nobody trains: no member
// of any world has the model.
void JobController::SearchCheckpoint(int64_t step, bool at_base) {
  searching_ = true;
  CheckpointQuery query{checkpoints_, step, at_base};
  if (bad_checkpoint_.has_value()) {
    query.at_base = false;
    query.doubtful = bad_checkpoint_->path;
    if (checkpoints_.base().has_value()) {
      query.step = std::min(step, checkpoints_.base()->version - 1);
    } else {
      query.bad_start = options_.restore_step;
    }
  }
  options_.search_checkpoint(std::move(query));
}

void JobController::DoubtCheckpoint(absl::Time now, int64_t worker_id,
                                    const std::string& reason) {
  const std::optional<checkpoint::Version>& base = checkpoints_.base();
  const std::string path =
      base.has_value() ? base->path : options_.restore_from;
  if (path.empty() || cut_back_due_ || searching_ || ending_.has_value() ||
      heritage_.has_value() || membership().HasLevelMember()) {
    return;
  }
  bad_checkpoint_ = {path, worker_id, reason};
  cut_back_due_ = true;
  departed_.SettleAll();
  FinishDeparted(now);
}

void JobController::TrustCheckpoint(absl::Time now) {
  const BadCheckpoint trusted = *std::exchange(bad_checkpoint_, std::nullopt);
  if (unreadable_.path != trusted.path) unreadable_ = {trusted.path, 0};
  // Another worker, or a slot that is relaunched elsewhere, may do better, but
  // not for ever. A replacement comes after all who are there.
  const auto others = static_cast<int64_t>(membership().num_workers());
  if (++unreadable_.workers >
      std::max<int64_t>(options_.tasks.task_max_failures, others)) {
    return Fail(now,
                absl::StrCat("the model is lost: ", unreadable_.workers,
                             " workers in a row could not read the "
                             "checkpoint ",
                             trusted.path, ", which is whole (", trusted.reason,
                             "); is its folder mounted there?"));
  }
  EndCutBack(now);
  // It may have been lost meanwhile.
  if (registry_.FindById(trusted.worker_id) == nullptr) return;
  Evict(now, trusted.worker_id, WorkerLoss::kCrashed,
        absl::StrCat("it cannot read the checkpoint ", trusted.path,
                     ", which is whole (", trusted.reason,
                     "); is its folder mounted there?"));
}

bool JobController::CutBackToStart(absl::Time now,
                                   const CheckpointAnswer& answer) {
  const bool bad_start =
      bad_checkpoint_.has_value() && !checkpoints_.base().has_value();
  if (bad_start && !answer.start.ok()) {
    Fail(now,
         absl::StrCat(
             "--checkpoint_dir_for_init: ", bad_checkpoint_->reason,
             "; nothing older can be used: ", answer.start.status().message()));
    return false;
  }
  if (bad_start) {
    v1::JournalRecord record = StartRecord();
    v1::JournalRecord::Start& start = *record.mutable_start();
    start.set_restore_from(answer.start->path);
    start.set_restore_step(answer.start->version);
    start.clear_restore_ledger();
    if (answer.start->ledger.has_value()) {
      *start.mutable_restore_ledger() = *answer.start->ledger;
    }
    const absl::Status set = SetStart(start, /*tell=*/true);
    if (!set.ok()) {
      Fail(now, absl::StrCat("--checkpoint_dir_for_init: ", set.message()));
      return false;
    }
    Record(record);
  }
  if (!CutBackTo(now, first_ledger_, nullptr) && bad_checkpoint_.has_value()) {
    // The same checkpoint would be tried again, for ever.
    Fail(now, absl::StrCat("the model is lost: ", bad_checkpoint_->reason));
    return false;
  }
  return true;
}

void JobController::OnCheckpointFound(absl::Time now,
                                      const CheckpointAnswer& answer) {
  searching_ = false;
  if (ending_.has_value()) return;
  if (!answer.error.ok()) {
    // To start again from the beginning would abandon checkpoints that may be
    // intact.
    return Fail(now, absl::StrCat("the model is lost, and its checkpoints "
                                  "cannot be read: ",
                                  answer.error.message()));
  }
  if (answer.is_whole && bad_checkpoint_.has_value()) {
    TrustCheckpoint(now);
    return Advance(now);
  }
  if (bad_checkpoint_.has_value() && !bad_checkpoint_->path.empty()) {
    observer_.OnMessage(absl::StrCat(
        "the checkpoint ", std::exchange(bad_checkpoint_->path, std::string()),
        " cannot be used: ", bad_checkpoint_->reason));
  }
  if (answer.keeps_base) {
    // Nothing has to fall back.
  } else if (!answer.version.has_value()) {
    if (!CutBackToStart(now, answer)) return;
  } else if (!CutBackTo(now, answer.ledger, &*answer.version)) {
    // Whole, but not of this data: an older one has to do.
    return SearchCheckpoint(answer.version->version - 1, /*at_base=*/false);
  }
  bad_checkpoint_.reset();
  EndCutBack(now);
  Advance(now);
}

void JobController::EndCutBack(absl::Time now) {
  cut_back_due_ = false;
  for (auto& [connection, worker] : registry_.workers()) worker.waiting = false;
  const auto decisions = std::exchange(held_back_, {});
  for (const auto& decision : decisions) SendPrepare(now, decision);
}

bool JobController::CutBackTo(absl::Time now, const v1::Ledger& ledger,
                              const checkpoint::Version* version) {
  const int64_t before = tasks_.step();
  const int64_t committed = tasks_.progress().committed_records;
  const absl::Status status = tasks_.CutBack(now, ledger);
  if (!status.ok()) {
    LogWarning("falling back to step ", ledger.step(), ": ", status.message());
    return false;
  }
  checkpoints_.FallBack(version);
  v1::JournalRecord record;
  *record.mutable_fell_back() = ToProto(checkpoints_.base());
  Record(record);
  committed_totals_.clear();
  evaluation_.CutBack(now, ledger.step());
  // A journal may end between the commits of a step and the step.
  if (before == ledger.step() && committed == ledger.committed_records()) {
    return true;
  }
  observer_.OnCutBack(ledger.step());
  observer_.OnMessage(absl::StrCat("the model of step ", before,
                                   " is lost; training continues from step ",
                                   ledger.step()));
  return true;
}

bool JobController::KnowsRestorePoint() const {
  // What the job began with. A checkpoint of its own may have been deleted.
  return !checkpoints_.base().has_value() &&
         tasks_.step() == first_ledger_.step() &&
         tasks_.progress().committed_records ==
             first_ledger_.committed_records();
}

}  // namespace elasticdl::master
