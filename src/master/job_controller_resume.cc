// The controller's part in a restart of the master: it repeats what the one
// before has recorded, waits for the workers, which have kept model and tasks,
// and goes on with them (docs/design/0005-master-restart.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "job_controller.h"

namespace elasticdl::master {
namespace {

// Adds a line to the audit.
bool IsAudited(const v1::JournalRecord& record) {
  return record.has_task() &&
         (record.task().has_committed() || record.task().has_cut_back());
}

// A master that could not record all may have made so many worlds, or taken so
// many workers, unseen. None of their numbers is used again.
constexpr int64_t kUnseen = 1000;

}  // namespace

std::optional<int64_t> AuditBytesToKeep(
    const std::vector<v1::JournalRecord>& replay) {
  // All lines of what a state stands for are there.
  const auto last = std::find_if(
      replay.rbegin(), replay.rend(), [](const v1::JournalRecord& record) {
        return IsAudited(record) || record.has_state();
      });
  if (last == replay.rend()) return std::nullopt;
  return last->audit_bytes();
}

void JobController::Record(const v1::JournalRecord& record) const {
  if (options_.record) options_.record(record);
}

void JobController::RecordGone(int64_t worker_id) {
  not_gone_.erase(worker_id);
  v1::JournalRecord record;
  record.set_gone(worker_id);
  Record(record);
}

void JobController::AddDeparted(int64_t worker_id,
                                const DepartedWorkers::Departed& departed) {
  departed_.Add(worker_id, departed);
  v1::JournalRecord record;
  record.set_departed(worker_id);
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

v1::JournalRecord JobController::StartRecord() const {
  v1::JournalRecord record;
  v1::JournalRecord::Start& start = *record.mutable_start();
  start.set_job_name(options_.job.job_name());
  start.set_restore_from(options_.restore_from);
  start.set_restore_step(options_.restore_step);
  start.set_run(options_.run);
  if (options_.restore_ledger.has_value()) {
    *start.mutable_restore_ledger() = *options_.restore_ledger;
  }
  return record;
}

std::vector<v1::JournalRecord> JobController::StateRecords() const {
  std::vector<v1::JournalRecord> records = {StartRecord()};
  if (shards_.has_value()) {
    *records.emplace_back().mutable_shards() = *shards_;
  }
  v1::JournalRecord::State& state = *records.emplace_back().mutable_state();
  *state.mutable_tasks() = tasks_.State();
  int64_t next = -1;
  for (const int64_t id : registry_.used_ids()) {
    if (id != next) {
      if (next >= 0) state.add_used_ids(next);
      state.add_used_ids(id);
    }
    next = id + 1;
  }
  if (next >= 0) state.add_used_ids(next);
  state.mutable_workers()->Add(not_gone_.begin(), not_gone_.end());
  for (const auto& [worker_id, departed] : departed_.all()) {
    state.add_departed(worker_id);
    if (departed.settled) state.add_settled(worker_id);
  }
  for (const auto& [worker_id, total] : committed_totals_) {
    (*state.mutable_committed_totals())[worker_id] = total;
  }
  state.set_generation(world_.last_generation());
  *state.mutable_active() = world_.last_world();
  *state.mutable_checkpoints() = checkpoints_.ToProto();
  if (HasServers()) servers_->SaveState(state);
  if (ending_.has_value() && !suspended_) {
    const JobResult result = WithLastCheckpoint(*ending_);
    state.mutable_outcome()->set_exit_code(result.exit_code);
    state.mutable_outcome()->set_message(result.message);
  }
  return records;
}

absl::Status JobController::ReplayState(absl::Time now,
                                        const v1::JournalRecord::State& state) {
  ELASTICDL_RETURN_IF_ERROR(tasks_.LoadState(now, state.tasks()));
  evaluation_.SetEvaluated(state.tasks().evaluated_version());
  for (int i = 0; i + 1 < state.used_ids_size(); i += 2) {
    for (int64_t id = state.used_ids(i); id < state.used_ids(i + 1); ++id) {
      registry_.NoteUsedId(id);
    }
  }
  for (const int64_t worker_id : state.workers()) resumption_.Await(worker_id);
  not_gone_ = resumption_.awaited();
  for (const int64_t worker_id : state.departed()) ReplayDeparted(worker_id);
  for (const int64_t worker_id : state.settled()) departed_.Settle(worker_id);
  for (const auto& [worker_id, total] : state.committed_totals()) {
    committed_totals_[worker_id] = total;
  }
  world_.StartAfter(state.generation());
  world_.set_last_world(state.active());
  checkpoints_.FromProto(state.checkpoints());
  if (HasServers()) servers_->LoadState(state);
  if (state.has_outcome()) {
    ending_ = JobResult{state.outcome().exit_code(), state.outcome().message()};
  }
  return absl::OkStatus();
}

void JobController::ReplayDeparted(int64_t worker_id) {
  resumption_.Take(worker_id);
  DepartedWorkers::Departed departed;
  // Nobody can tell any more how it ended.
  departed.loss = WorkerLoss::kPreempted;
  departed.reason = "lost before the master was restarted";
  departed_.Add(worker_id, departed);
}

absl::Status JobController::Begin(absl::Time now) {
  if (!continues()) {
    Record(StartRecord());
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
  tasks_.BeginNewIds();
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
          observer_.OnCommit(*range, record.step_now(),
                             record.generation_now());
        }
      } else if (event.has_cut_back()) {
        committed_totals_.clear();
        if (tell) observer_.OnCutBack(event.cut_back().step());
      } else if (event.has_evaluated()) {
        evaluation_.SetEvaluated(event.evaluated());
      }
      break;
    }
    case v1::JournalRecord::kWorker:
      registry_.NoteUsedId(record.worker());
      resumption_.Await(record.worker());
      not_gone_.insert(record.worker());
      break;
    case v1::JournalRecord::kGone:
      resumption_.Take(record.gone());
      not_gone_.erase(record.gone());
      committed_totals_.erase(record.gone());
      departed_.Forget(record.gone());
      break;
    case v1::JournalRecord::kDeparted:
      ReplayDeparted(record.departed());
      break;
    case v1::JournalRecord::kGeneration:
      world_.StartAfter(record.generation());
      break;
    case v1::JournalRecord::kActive:
      world_.set_last_world(record.active());
      checkpoints_.SetLineage(record.active().lineage());
      // Its Level has brought the totals of all that were gone.
      departed_.SettleAll();
      break;
    case v1::JournalRecord::kSaved:
      checkpoints_.Report(checkpoints_.lineage(), record.saved(), "");
      break;
    case v1::JournalRecord::kFellBack: {
      const auto base = FromProto(record.fell_back(), options_.run);
      checkpoints_.FallBack(base.has_value() ? &*base : nullptr);
      break;
    }
    case v1::JournalRecord::kVersion:
    case v1::JournalRecord::kBuckets:
    case v1::JournalRecord::kPart:
      if (HasServers()) servers_->Replay(record);
      break;
    case v1::JournalRecord::kState:
      return ReplayState(now, record.state());
    case v1::JournalRecord::kOutcome:
      ending_ =
          JobResult{record.outcome().exit_code(), record.outcome().message()};
      break;
    case v1::JournalRecord::kStart:
      // The first one, too: it says what is known already.
      return SetStart(record.start(), /*tell=*/false);
    case v1::JournalRecord::kTarget:
    case v1::JournalRecord::RECORD_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void JobController::BeginResume(absl::Time now) {
  if (HasServers()) servers_->Resume(now);
  reported_quarantined_ = tasks_.Summary().quarantined.size();
  if (ending_.has_value()) return;
  // Who trained has shards.
  shards_known_ = shards_known_ || tasks_.step() > options_.restore_step ||
                  !tasks_.Holders().empty() ||
                  world_.last_world().members_size() > 0;
  const std::vector<int64_t> last_members(world_.last_world().members().begin(),
                                          world_.last_world().members().end());
  resumption_.Begin(
      HasWorld() ? last_members : tasks_.Holders(), now + options_.resume_grace,
      now + std::max(options_.resume_grace, options_.resume_step_grace));
  if (options_.replay_incomplete) {
    // The models of the workers hold data that is not known here to be handed
    // out: nobody is waited for, and who comes is refused.
    observer_.OnMessage(
        "the previous master's journal is incomplete (disk full?): its workers "
        "cannot be taken back");
    resumption_.AwaitNobody();
    registry_.SkipIds(kUnseen);
    world_.StartAfter(world_.last_generation() + kUnseen);
    EndResume(now);
    not_gone_.clear();
    return;
  }
  observer_.OnMessage(absl::StrCat(
      "the master is back at step ", tasks_.step(), "; ",
      resumption_.members().empty()
          ? "no worker had the model"
          : absl::StrCat("waiting for workers ",
                         absl::StrJoin(resumption_.members(), ", "))));
  EndResumeIfComplete(now);
}

void JobController::OnResumedReady(absl::Time now, ConnectionId connection,
                                   const Worker& worker,
                                   const v1::Ready& ready) {
  for (v1::Task& task : tasks_.HeldSince(worker.id, ready.last_task_id())) {
    v1::MasterMessage message;
    *message.mutable_task() = std::move(task);
    port_.Send({connection}, std::move(message));
  }
  if (HasWorld() && (!resumption_.waiting() || !ready.has_state())) {
    JoinWorld(now, worker.id, ready.host());
    return;
  }
  if (resumption_.waiting()) {
    resumption_.CameBack(worker.id, ready.host(), ready.step());
  }
  EndResumeIfComplete(now);
}

void JobController::JoinWorld(absl::Time now, int64_t worker_id,
                              const std::string& host) {
  if (resumption_.waiting()) return resumption_.Joined(worker_id, host);
  const bool had_level = membership().HasLevelMember();
  Execute(now, had_level, membership().Ready(now, worker_id, host));
}

void JobController::EndResumeIfComplete(absl::Time now) {
  const auto reachable = [this](int64_t id) {
    return registry_.IsReachable(id);
  };
  if (resumption_.Complete(reachable)) EndResume(now);
}

void JobController::OnResumeDeadline(absl::Time now) {
  const auto reachable = [this](int64_t id) {
    return registry_.IsReachable(id);
  };
  if (resumption_.OnDeadline(now, reachable)) EndResume(now);
}

void JobController::EndResume(absl::Time now) {
  const Resumption::Outcome waiting = resumption_.End();
  std::vector<rendezvous::WorldMember> members;
  for (const int64_t id : waiting.members) {
    const auto back = waiting.back.find(id);
    if (back != waiting.back.end() && registry_.IsReachable(id)) {
      members.push_back({id, back->second.host});
      continue;
    }
    resumption_.Take(id);
    // It came back and is lost since: that is dealt with.
    if (departed_.Contains(id) || not_gone_.count(id) == 0) continue;
    DepartedWorkers::Departed departed;
    departed.settled = !HasWorld();
    departed.loss = WorkerLoss::kPreempted;
    departed.reason = "did not reattach to the restarted master";
    AddDeparted(id, departed);
    // It may have a stream but was not ready in time. What it holds goes to
    // others, so it must not put that into the model any more.
    if (registry_.IsReachable(id)) {
      const ConnectionId late = registry_.ConnectionOf(id);
      port_.Close(late, absl::FailedPreconditionError(departed.reason));
      registry_.Remove(late);
    }
    // If its process hangs, another one has its place.
    port_.KillWorker(id, departed.reason);
  }
  // Brought level in a world that the old master did not hear of any more; not
  // one whose model is behind what the ledger says.
  for (const auto& [id, back] : waiting.back) {
    if (!HasWorld()) break;
    const bool known =
        std::any_of(waiting.members.begin(), waiting.members.end(),
                    [id = id](int64_t member) { return member == id; });
    if (known || !registry_.IsReachable(id)) continue;
    if (!members.empty() || back.step >= tasks_.step()) {
      members.push_back({id, back.host});
    } else {
      Evict(now, id, WorkerLoss::kPreempted,
            absl::StrCat("its model is of step ", back.step, ", the job is at ",
                         tasks_.step()));
    }
  }
  if (!members.empty()) {
    observer_.OnMessage(absl::StrCat(
        members.size(), " of ",
        Count(std::max(members.size(), waiting.members.size()), "worker"),
        " attached again, nothing is lost"));
  }
  if (!HasWorld()) {
    FinishDeparted(now);
    return;
  }
  if (members.empty()) {
    // Nobody has the model: what was trained since the last checkpoint is lost.
    departed_.SettleAll();
    // Also when the journal ends between the first commits and their step.
    cut_back_due_ =
        tasks_.step() > first_ledger_.step() ||
        tasks_.progress().committed_records > first_ledger_.committed_records();
    FinishDeparted(now);
  } else {
    Execute(now, /*had_level=*/true,
            membership().Resume(now, members, "the master was restarted"));
  }
  for (const rendezvous::WorldMember& joiner : waiting.joiners) {
    if (!registry_.IsReachable(joiner.worker_id)) continue;
    JoinWorld(now, joiner.worker_id, joiner.host);
  }
  // What they said while the membership did not know them.
  std::vector<int64_t> leaving;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (worker.leaving) leaving.push_back(worker.id);
  }
  for (const int64_t id : leaving) {
    const bool had_level = membership().HasLevelMember();
    Execute(now, had_level, membership().Leave(now, id));
  }
  if (!stopping_.has_value() || ending_.has_value()) return;
  stopping_->deadline = now + kStopGrace;
  const bool had_level = membership().HasLevelMember();
  Execute(now, had_level, membership().LeaveAll(now));
}

}  // namespace elasticdl::master
