// The controller's part in a restart of the master: it repeats what the one
// before has recorded, waits for the workers, which have kept model and tasks,
// and goes on with them (docs/design/0005-master-restart.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "job_controller.h"

namespace elasticdl::master {
namespace {

// Adds a line to the audit.
bool IsAudited(const v1::JournalRecord& record) {
  return record.has_task() &&
         (record.task().has_committed() || record.task().has_cut_back());
}

}  // namespace

std::optional<int64_t> AuditBytesToKeep(
    const std::vector<v1::JournalRecord>& replay) {
  const auto last = std::find_if(replay.rbegin(), replay.rend(), IsAudited);
  if (last == replay.rend()) return std::nullopt;
  return last->audit_bytes();
}

void JobController::Record(const v1::JournalRecord& record) const {
  if (options_.record) options_.record(record);
}

void JobController::RecordGone(int64_t worker_id) const {
  v1::JournalRecord record;
  record.set_gone(worker_id);
  Record(record);
}

void JobController::WatchTasks() {
  if (!options_.record) return;
  tasks_.SetRecorder([this](const v1::TaskEvent& event) {
    v1::JournalRecord record;
    *record.mutable_task() = event;
    if (event.has_committed()) {
      record.set_generation_now(commit_generation_);
      record.set_step_now(commit_step_);
    }
    Record(record);
  });
}

absl::Status JobController::Begin(absl::Time now) {
  if (!continues()) {
    v1::JournalRecord record;
    v1::JournalRecord::Start& start = *record.mutable_start();
    start.set_job_name(options_.job.job_name());
    start.set_restore_from(options_.restore_from);
    start.set_restore_step(options_.restore_step);
    if (options_.restore_ledger.has_value()) {
      *start.mutable_restore_ledger() = *options_.restore_ledger;
    }
    Record(record);
    WatchTasks();
    return absl::OkStatus();
  }
  // The lines of the last commits may be missing in the audit; it was cut to
  // where they begin.
  const std::optional<int64_t> audited = AuditBytesToKeep(options_.replay);
  const auto keep_quiet = std::exchange(options_.record, nullptr);
  for (const v1::JournalRecord& record : options_.replay) {
    const bool tell = IsAudited(record) && record.audit_bytes() == audited;
    ELASTICDL_RETURN_IF_ERROR(Replay(now, record, tell));
  }
  options_.record = keep_quiet;
  WatchTasks();
  BeginResume(now);
  return absl::OkStatus();
}

absl::Status JobController::Replay(absl::Time now,
                                   const v1::JournalRecord& record, bool tell) {
  switch (record.record_case()) {
    case v1::JournalRecord::kShards:
      return LearnShards(record.shards());
    case v1::JournalRecord::kTask: {
      const v1::TaskEvent& event = record.task();
      ELASTICDL_ASSIGN_OR_RETURN(const auto range, tasks_.Apply(now, event));
      if (range.has_value()) {
        committed_totals_[range->worker_id] += range->end - range->begin;
        if (tell) {
          output_.OnCommit(*range, record.step_now(), record.generation_now());
        }
      } else if (event.has_cut_back()) {
        committed_totals_.clear();
        if (tell) output_.OnCutBack(event.cut_back().step());
      } else if (event.has_evaluated()) {
        evaluation_.SetEvaluated(event.evaluated());
      }
      break;
    }
    case v1::JournalRecord::kWorker:
      used_ids_.insert(record.worker());
      next_worker_id_ = std::max(next_worker_id_, record.worker() + 1);
      resumable_.insert(record.worker());
      break;
    case v1::JournalRecord::kGone:
      resumable_.erase(record.gone());
      committed_totals_.erase(record.gone());
      break;
    case v1::JournalRecord::kGeneration:
      membership_ =
          rendezvous::Membership(options_.membership, record.generation() + 1);
      break;
    case v1::JournalRecord::kActive:
      last_members_.assign(record.active().members().begin(),
                           record.active().members().end());
      break;
    case v1::JournalRecord::kCheckpoint:
      ledgers_[record.checkpoint().step()] = record.checkpoint().ledger();
      break;
    case v1::JournalRecord::kSaved:
      saved_step_ = record.saved();
      ledgers_.erase(ledgers_.begin(), ledgers_.lower_bound(record.saved()));
      break;
    case v1::JournalRecord::kOutcome:
      ending_ =
          JobResult{record.outcome().exit_code(), record.outcome().message()};
      break;
    case v1::JournalRecord::kStart:
    case v1::JournalRecord::kTarget:
    case v1::JournalRecord::RECORD_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void JobController::BeginResume(absl::Time now) {
  reported_quarantined_ = tasks_.Summary().quarantined.size();
  if (ending_.has_value()) return;
  // Who trained has shards.
  shards_known_ = shards_known_ || tasks_.step() > options_.restore_step ||
                  !resumable_.empty();
  Waiting waiting;
  waiting.deadline = now + options_.resume_grace;
  for (const int64_t id : IsTraining() ? last_members_ : tasks_.Holders()) {
    if (resumable_.count(id) != 0) waiting.members.push_back(id);
  }
  waiting_ = std::move(waiting);
  output_.OnMessage(
      absl::StrCat("the master is back at step ", tasks_.step(), "; ",
                   waiting_->members.empty()
                       ? "no worker had the model"
                       : absl::StrCat("waiting for workers ",
                                      absl::StrJoin(waiting_->members, ", "))));
  EndResumeIfComplete(now);
}

bool JobController::TakeResumable(int64_t worker_id) {
  return resumable_.erase(worker_id) != 0;
}

void JobController::OnResumedReady(absl::Time now, ConnectionId connection,
                                   const WorkerState& worker,
                                   const v1::Ready& ready) {
  for (v1::Task& task : tasks_.HeldSince(worker.id, ready.last_task_id())) {
    v1::MasterMessage message;
    *message.mutable_task() = std::move(task);
    output_.Send({connection}, std::move(message));
  }
  if (IsTraining() && (!waiting_.has_value() || !ready.has_state())) {
    JoinWorld(now, worker.id, ready.host());
    return;
  }
  if (waiting_.has_value()) waiting_->back[worker.id] = ready.host();
  EndResumeIfComplete(now);
}

void JobController::JoinWorld(absl::Time now, int64_t worker_id,
                              const std::string& host) {
  if (waiting_.has_value()) {
    waiting_->joiners.push_back({worker_id, host});
    return;
  }
  const bool had_level = membership_.HasLevelMember();
  Execute(now, had_level, membership_.Ready(now, worker_id, host));
}

void JobController::EndResumeIfComplete(absl::Time now) {
  if (!waiting_.has_value()) return;
  // Each is back or known to be dead.
  const bool complete = std::all_of(
      waiting_->members.begin(), waiting_->members.end(), [this](int64_t id) {
        return waiting_->back.count(id) != 0 ||
               (resumable_.count(id) == 0 && connection_of_.count(id) == 0);
      });
  if (complete) EndResume(now);
}

void JobController::EndResume(absl::Time now) {
  const Waiting waiting = *std::move(waiting_);
  waiting_.reset();
  std::vector<rendezvous::WorldMember> members;
  for (const int64_t id : waiting.members) {
    const auto back = waiting.back.find(id);
    if (back != waiting.back.end() && connection_of_.count(id) != 0) {
      members.push_back({id, back->second});
      continue;
    }
    resumable_.erase(id);
    if (gone_.count(id) != 0) continue;
    Gone gone;
    gone.settled = !IsTraining();
    gone.loss = WorkerLoss::kPreempted;
    gone.reason = "did not come back to the new master";
    gone_[id] = gone;
  }
  // Brought level in a world that the old master did not hear of any more.
  for (const auto& [id, host] : waiting.back) {
    const bool known =
        std::any_of(waiting.members.begin(), waiting.members.end(),
                    [id = id](int64_t member) { return member == id; });
    if (!known && connection_of_.count(id) != 0) members.push_back({id, host});
  }
  if (!IsTraining()) {
    FinishGone(now);
    return;
  }
  if (members.empty()) {
    // Nobody has the model: what was trained since the last checkpoint is lost.
    for (auto& [id, gone] : gone_) gone.settled = true;
    cut_back_due_ = tasks_.step() > first_ledger_.step();
    FinishGone(now);
  } else {
    Execute(now, /*had_level=*/true,
            membership_.Resume(now, members, "the master was restarted"));
  }
  for (const rendezvous::WorldMember& joiner : waiting.joiners) {
    if (connection_of_.count(joiner.worker_id) == 0) continue;
    JoinWorld(now, joiner.worker_id, joiner.host);
  }
  // What they said while the membership did not know them.
  std::vector<int64_t> leaving;
  for (const auto& [connection, worker] : workers_) {
    if (worker.leaving) leaving.push_back(worker.id);
  }
  for (const int64_t id : leaving) {
    const bool had_level = membership_.HasLevelMember();
    Execute(now, had_level, membership_.Leave(now, id));
  }
}

}  // namespace elasticdl::master
