#include "pod_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/text.h"

namespace elasticdl::master {
namespace {

SlotRules RulesOf(const PodManagerOptions& options, PodType type) {
  SlotRules rules;
  rules.type = type;
  rules.job_name = options.job_name;
  rules.max_failures = options.relaunch_on_worker_failure;
  rules.exit_zero_is_done = options.exit_zero_is_done;
  rules.relaunch = options.relaunch;
  rules.delete_grace = options.delete_grace;
  rules.stable_after = options.stable_after;
  rules.backoff_initial = options.backoff_initial;
  rules.backoff_max = options.backoff_max;
  rules.attach_timeout = type == PodType::kWorker
                             ? options.attach_timeout
                             : options.server_attach_timeout;
  return rules;
}

PodFleet::Options Workers(const PodManagerOptions& options) {
  PodFleet::Options workers;
  workers.rules = RulesOf(options, PodType::kWorker);
  workers.target = options.num_workers;
  workers.priority = options.priority;
  workers.first_id = options.first_worker_id;
  return workers;
}

PodFleet::Options Servers(const PodManagerOptions& options) {
  PodFleet::Options servers;
  servers.rules = RulesOf(options, PodType::kPs);
  servers.target = options.num_servers;
  servers.priority.all = options.server_priority;
  return servers;
}

const char* WordFor(PodType type) {
  return type == PodType::kWorker ? "worker" : "server";
}

}  // namespace

PodManager::PodManager(const PodManagerOptions& options)
    : exit_zero_is_done_(options.exit_zero_is_done),
      has_servers_(options.num_servers > 0),
      workers_(Workers(options)),
      servers_(Servers(options)) {
  ELASTICDL_CHECK(options.num_workers >= 1);
  ELASTICDL_CHECK(options.num_servers >= 0);
}

// Questions -------------------------------------------------------------------

PodSlot* PodManager::FindPod(const std::string& name) {
  PodSlot* slot = workers_.Find(name);
  return slot != nullptr ? slot : servers_.Find(name);
}

std::optional<PodIdentity> PodManager::Find(const std::string& name) {
  for (const PodType type : {PodType::kWorker, PodType::kPs}) {
    const PodSlot* slot = fleet(type).Find(name);
    if (slot != nullptr) return PodIdentity{type, slot->id()};
  }
  return std::nullopt;
}

std::vector<PodInfo> PodManager::pods() const {
  std::vector<PodInfo> pods;
  servers_.AppendPods(pods);
  workers_.AppendPods(pods);
  return pods;
}

absl::Time PodManager::next_wake() const {
  return std::min(workers_.next_wake(), servers_.next_wake());
}

// Events ----------------------------------------------------------------------

void PodManager::Adopt(const std::vector<PodEvent>& existing) {
  ELASTICDL_CHECK(!started_);
  for (const PodEvent& event : existing) {
    // Servers of a job that has none are somebody else's.
    if (event.type == PodType::kPs && !has_servers_) continue;
    fleet(event.type).Adopt(event);
  }
}

PodManager::Decisions PodManager::Start(absl::Time now) {
  Decisions out;
  if (started_ || ending()) return out;
  started_ = true;
  servers_.Start(now, out);
  workers_.Start(now, out);
  return out;
}

PodManager::Decisions PodManager::OnPodEvent(const PodEvent& event,
                                             absl::Time now) {
  if (!event.create_error.ok()) {
    return CreateFailed(event.name, event.create_error, now);
  }
  Decisions out;
  PodSlot* slot = FindPod(event.name);
  if (slot == nullptr) return out;
  if (IsFinal(event.phase)) {
    slot->OnEnded(event, now, out);
  } else {
    slot->OnAlive(event, now, out);
  }
  Settle(now, out);
  return out;
}

PodManager::Decisions PodManager::CreateFailed(const std::string& name,
                                               const absl::Status& error,
                                               absl::Time now) {
  Decisions out;
  PodSlot* slot = FindPod(name);
  if (slot == nullptr || absl::IsAlreadyExists(error)) return out;
  slot->OnCreateFailed(error, now, out);
  Settle(now, out);
  return out;
}

PodManager::Decisions PodManager::OnTimer(absl::Time now,
                                          const Attached& attached) {
  Decisions out;
  servers_.OnTimer(
      now, [&](int64_t id) { return attached(PodType::kPs, id); }, out);
  workers_.OnTimer(
      now, [&](int64_t id) { return attached(PodType::kWorker, id); }, out);
  return out;
}

void PodManager::NoteLeaving(int64_t worker_id) {
  if (PodSlot* slot = workers_.FindById(worker_id)) {
    slot->NoteLeaving();
  }
}

void PodManager::ForgiveFailure(int64_t worker_id) {
  if (PodSlot* slot = workers_.FindById(worker_id)) {
    slot->ForgiveFailure();
  }
}

absl::StatusOr<PodManager::Decisions> PodManager::Replace(
    int64_t id, const std::string& reason, absl::Time now, PodType type) {
  PodSlot* slot = fleet(type).FindById(id);
  if (slot == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no ", WordFor(type), " ", id, " to replace"));
  }
  Decisions out;
  slot->Kill(reason, out);
  return out;
}

absl::StatusOr<PodManager::Decisions> PodManager::SetTarget(int64_t count,
                                                            absl::Time now,
                                                            PodType type) {
  const char* word = WordFor(type);
  const std::string what = absl::StrCat("cannot scale to ", Count(count, word));
  if (count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": at least one is needed"));
  }
  if (ending()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the job is ending"));
  }
  if (type == PodType::kPs && !has_servers_) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the job has no parameter servers"));
  }
  Decisions out;
  fleet(type).SetTarget(count,
                        absl::StrCat("scaled from ", fleet(type).target(),
                                     " to ", Count(count, word)),
                        now, out);
  return out;
}

// The end ---------------------------------------------------------------------

PodManager::Decisions PodManager::SetWorkDone(
    absl::Time now, const std::function<bool(int64_t id)>& attached) {
  Decisions out;
  if (ending()) return out;
  work_done_ = true;
  const std::string reason = "the work is done";
  // Attached ones end by themselves; others may hang, or never start.
  workers_.Retire(reason, attached, out);
  // Servers stay, and are relaunched, until the last worker has ended: it may
  // still save what they hold.
  UpdateOutcome(out);
  return out;
}

PodManager::Decisions PodManager::Stop(const std::string& reason,
                                       absl::Time now) {
  Decisions out;
  End(JobState::kStopped, reason, out);
  return out;
}

PodManager::Decisions PodManager::Fail(const std::string& reason,
                                       absl::Time now) {
  Decisions out;
  End(JobState::kFailed, reason, out);
  return out;
}

// The first outcome counts; pods are deleted whatever it is.
void PodManager::End(JobState state, const std::string& reason,
                     Decisions& out) {
  if (outcome_.state == JobState::kRunning) outcome_ = {state, reason};
  workers_.RemoveAll(reason, out);
  servers_.RemoveAll(reason, out);
}

void PodManager::Settle(absl::Time now, Decisions& out) {
  servers_.Sweep();
  workers_.Sweep();
  // First: a job that is over creates nothing.
  UpdateOutcome(out);
  servers_.CreateDue(now, out);
  workers_.CreateDue(now, out);
}

void PodManager::UpdateOutcome(Decisions& out) {
  std::string lost_server;
  for (const PodDecision& decision : out) {
    if (decision.kind != PodDecision::Kind::kGaveUp) continue;
    (decision.type == PodType::kWorker ? last_give_up_ : lost_server) =
        decision.reason;
  }
  if (outcome_.state != JobState::kRunning) return;
  if (!lost_server.empty()) {
    const std::string reason =
        absl::StrCat("a parameter server is lost: ", lost_server);
    return End(JobState::kFailed, reason, out);
  }
  if (work_done_) {
    if (workers_.all_gone()) servers_.RemoveAll("the work is done", out);
    if (all_gone()) outcome_ = {JobState::kSucceeded, "the work is done"};
    return;
  }
  if (workers_.empty() || workers_.num_active() > 0) return;
  if (exit_zero_is_done_ && last_give_up_.empty()) {
    return End(JobState::kSucceeded, "all workers ended with exit code 0", out);
  }
  const std::string reason =
      last_give_up_.empty()
          ? "all workers exited with code 0 before the work was done"
          : absl::StrCat("no worker is left: ", last_give_up_);
  End(JobState::kFailed, reason, out);
}

}  // namespace elasticdl::master
