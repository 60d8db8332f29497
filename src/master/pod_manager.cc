#include "pod_manager.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"

namespace elasticdl::master {
namespace {

constexpr char kHigh[] = "high";
constexpr char kLow[] = "low";

// How a shell and a container report a signal.
bool EndedBySignal(const PodEvent& event, int signal) {
  return event.signal == signal || event.exit_code == 128 + signal;
}

// Somebody took the pod away: no fault of what runs in it.
bool TakenAway(const PodEvent& event) {
  switch (event.reason) {
    case PodEndReason::kOomKilled:
      return false;
    case PodEndReason::kDeleted:
    case PodEndReason::kEvicted:
    case PodEndReason::kPreempted:
      return true;
    default:
      return event.phase == PodPhase::kDeleted ||
             EndedBySignal(event, SIGKILL) || EndedBySignal(event, SIGTERM);
  }
}

}  // namespace

bool IsProcessFailure(const PodEvent& event) {
  return IsFinal(event.phase) && event.phase != PodPhase::kSucceeded &&
         !TakenAway(event);
}

PodManager::PodManager(PodManagerOptions options)
    : options_(std::move(options)),
      target_(options_.num_workers),
      next_id_(options_.first_worker_id) {
  ELASTICDL_CHECK(target_ >= 1);
}

void PodManager::ForgiveFailure(int64_t id) {
  if (Lineage* lineage = FindById(id)) lineage->forgiven = true;
}

// Questions -------------------------------------------------------------------

bool PodManager::HasPod(const Lineage& lineage) const {
  return lineage.state == LineageState::kCreating ||
         lineage.state == LineageState::kRunning;
}

// Does it fill a place among the workers, now or soon?
bool PodManager::IsActive(const Lineage& lineage) const {
  return !lineage.removed &&
         (HasPod(lineage) || lineage.state == LineageState::kWaiting);
}

int64_t PodManager::NumActive() const {
  return std::count_if(slots_.begin(), slots_.end(), [this](const auto& slot) {
    return IsActive(slot.second);
  });
}

PodManager::Lineage* PodManager::FindById(int64_t id) {
  const auto it = by_name_.find(Name(id));
  return it == by_name_.end() ? nullptr : &slots_.at(it->second);
}

std::string PodManager::Name(int64_t id) const {
  return PodName(PodType::kWorker, options_.job_name, id);
}

// A lineage that is added later is high when there are too few of those.
std::string PodManager::NextPriority() const {
  if (options_.priority.high_fraction < 0) return options_.priority.all;
  const int64_t num_high =
      std::count_if(slots_.begin(), slots_.end(), [this](const auto& slot) {
        return IsActive(slot.second) && slot.second.priority == kHigh;
      });
  return num_high < NumHighPriority(target_, options_.priority.high_fraction)
             ? kHigh
             : kLow;
}

// Least loss first when scaling down: no pod, not running yet, youngest.
std::pair<int, int64_t> PodManager::LossOf(const Lineage& lineage) {
  const int rank = lineage.state == LineageState::kWaiting    ? 0
                   : lineage.state == LineageState::kCreating ? 1
                                                              : 2;
  return {rank, -lineage.id};
}

absl::Duration PodManager::BackoffAfter(int64_t count) const {
  absl::Duration delay = options_.backoff_initial;
  for (int64_t i = 1; i < count && delay < options_.backoff_max; ++i) {
    delay *= 2;
  }
  return std::min(delay, options_.backoff_max);
}

// Events ----------------------------------------------------------------------

void PodManager::Adopt(const std::vector<PodEvent>& existing) {
  ELASTICDL_CHECK(!started_);
  for (const PodEvent& event : existing) {
    if (event.type != PodType::kWorker || event.id < 0) continue;
    next_id_ = std::max(next_id_, event.id + 1);
    if (IsFinal(event.phase) || by_name_.count(event.name) != 0) continue;
    Lineage lineage;
    lineage.state = event.phase == PodPhase::kRunning ? LineageState::kRunning
                                                      : LineageState::kCreating;
    lineage.id = event.id;
    lineage.priority = event.priority;
    lineage.started = absl::InfinitePast();  // it has proved itself
    lineage.terminating = event.terminating;
    lineage.message = event.message;
    by_name_[event.name] = next_slot_;
    slots_.emplace(next_slot_++, std::move(lineage));
  }
}

PodManager::Decisions PodManager::Start(absl::Time now) {
  Decisions out;
  if (started_ || ending()) return out;
  started_ = true;
  const bool adopted = !slots_.empty();
  for (auto& [slot, lineage] : slots_) {
    lineage.attach_by = now + options_.attach_timeout;
  }
  AddLineages(target_ - NumActive(), adopted ? "missing after a restart of the "
                                               "master"
                                             : "start of the job");
  if (!adopted && options_.priority.high_fraction >= 0) {
    const std::set<int64_t> high =
        HighPrioritySlots(target_, options_.priority.high_fraction);
    for (auto& [slot, lineage] : slots_) {
      lineage.priority = high.count(slot) != 0 ? kHigh : kLow;
    }
  }
  RemoveSurplus("more workers than asked for", out);
  Reconcile(now, out);
  return out;
}

PodManager::Decisions PodManager::OnPodEvent(const PodEvent& event,
                                             absl::Time now) {
  if (!event.create_error.ok()) {
    return CreateFailed(event.name, event.create_error, now);
  }
  Decisions out;
  const auto named = by_name_.find(event.name);
  if (named == by_name_.end()) return out;
  const auto it = slots_.find(named->second);
  if (IsFinal(event.phase)) {
    Ended(it, event, now, out);
  } else {
    Alive(it->second, event, now, out);
  }
  Reconcile(now, out);
  UpdateOutcome(out);
  return out;
}

PodManager::Decisions PodManager::CreateFailed(const std::string& name,
                                               const absl::Status& error,
                                               absl::Time now) {
  Decisions out;
  const auto named = by_name_.find(name);
  if (named == by_name_.end() || absl::IsAlreadyExists(error)) return out;
  const auto it = slots_.find(named->second);
  Lineage& lineage = it->second;
  if (lineage.state != LineageState::kCreating) return out;
  const std::string why =
      absl::StrCat("could not create ", name, ": ", error.message());
  if (lineage.removed || ending()) {
    by_name_.erase(named);
    slots_.erase(it);
  } else if (absl::IsInvalidArgument(error) || absl::IsNotFound(error)) {
    by_name_.erase(named);
    GiveUp(lineage, why, out);
  } else {
    // The name stays known: the error may be about the answer, not the pod.
    ++lineage.create_errors;
    lineage.state = LineageState::kWaiting;
    lineage.not_before = now + BackoffAfter(lineage.create_errors);
    lineage.why = absl::StrCat("try again after: ", error.message());
    lineage.message = why;
    PodDecision delayed;
    delayed.kind = PodDecision::Kind::kDelayed;
    delayed.name = name;
    delayed.id = lineage.id;
    delayed.at = lineage.not_before;
    delayed.reason = why;
    out.push_back(std::move(delayed));
  }
  UpdateOutcome(out);
  return out;
}

PodManager::Decisions PodManager::OnTimer(
    absl::Time now, const std::function<bool(int64_t id)>& attached) {
  Decisions out;
  for (auto& [slot, lineage] : slots_) {
    if (lineage.attach_by > now) continue;
    lineage.attach_by = absl::InfiniteFuture();
    if (lineage.state != LineageState::kRunning || lineage.deleting ||
        attached(lineage.id)) {
      continue;
    }
    Kill(lineage,
         absl::StrCat("has run for ",
                      absl::FormatDuration(options_.attach_timeout),
                      " without coming to the master"),
         out);
  }
  Reconcile(now, out);
  return out;
}

void PodManager::NoteLeaving(int64_t id) {
  if (Lineage* lineage = FindById(id)) lineage->leaving = true;
}

absl::StatusOr<PodManager::Decisions> PodManager::Replace(
    int64_t id, const std::string& reason, absl::Time now) {
  Lineage* lineage = FindById(id);
  if (lineage == nullptr) {
    return absl::NotFoundError(absl::StrCat("no worker ", id, " to replace"));
  }
  Decisions out;
  if (!HasPod(*lineage) || lineage->deleting) return out;
  Kill(*lineage, reason, out);
  return out;
}

absl::StatusOr<PodManager::Decisions> PodManager::SetTarget(int64_t num_workers,
                                                            absl::Time now) {
  if (num_workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot scale to ", num_workers, " workers: at least one is needed"));
  }
  if (ending()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot scale to ", num_workers, " workers: the job is ending"));
  }
  Decisions out;
  const std::string why =
      absl::StrCat("scaled from ", target_, " to ", num_workers, " workers");
  target_ = num_workers;
  AddLineages(target_ - NumActive(), why);
  RemoveSurplus(why, out);
  Reconcile(now, out);
  return out;
}

PodManager::Decisions PodManager::SetWorkDone(
    absl::Time now, const std::function<bool(int64_t id)>& attached) {
  Decisions out;
  if (ending()) return out;
  work_done_ = true;
  for (auto it = slots_.begin(); it != slots_.end();) {
    const auto next = std::next(it);
    // Attached ones end by themselves; others may hang, or never start.
    if (it->second.state != LineageState::kRunning ||
        !attached(it->second.id)) {
      Remove(it, "the work is done", out);
    }
    it = next;
  }
  UpdateOutcome(out);
  return out;
}

PodManager::Decisions PodManager::Stop(const std::string& reason,
                                       absl::Time now) {
  Decisions out;
  if (outcome_.state == JobState::kRunning) {
    SetOutcome(JobState::kStopped, reason);
  }
  EndAll(reason, out);
  return out;
}

PodManager::Decisions PodManager::Fail(const std::string& reason,
                                       absl::Time now) {
  Decisions out;
  if (outcome_.state == JobState::kRunning) {
    SetOutcome(JobState::kFailed, reason);
  }
  EndAll(reason, out);
  return out;
}

// Transitions -----------------------------------------------------------------

void PodManager::AddLineages(int64_t count, const std::string& why) {
  for (int64_t i = 0; i < count; ++i) {
    Lineage lineage;
    lineage.priority = NextPriority();
    lineage.why = why;
    slots_.emplace(next_slot_++, std::move(lineage));
  }
}

void PodManager::RemoveSurplus(const std::string& why, Decisions& out) {
  while (NumActive() > target_) {
    auto victim = slots_.end();
    for (auto it = slots_.begin(); it != slots_.end(); ++it) {
      if (IsActive(it->second) &&
          (victim == slots_.end() ||
           LossOf(it->second) <= LossOf(victim->second))) {
        victim = it;
      }
    }
    Remove(victim, why, out);
  }
}

// The pod exists, pending or running. Also from kWaiting: a Create that was
// reported as failed had succeeded.
void PodManager::Alive(Lineage& lineage, const PodEvent& event, absl::Time now,
                       Decisions& out) {
  lineage.create_errors = 0;
  lineage.terminating = event.terminating;
  lineage.message = event.message;
  if (event.phase == PodPhase::kRunning &&
      lineage.state != LineageState::kRunning) {
    lineage.state = LineageState::kRunning;
    lineage.started = now;
    lineage.attach_by = now + options_.attach_timeout;
    lineage.pid = event.pid;
  } else if (lineage.state == LineageState::kWaiting) {
    lineage.state = LineageState::kCreating;
  }
  // Reasons may alternate (ErrImagePull, ImagePullBackOff) for hours.
  if (event.message.empty() || !lineage.told.insert(event.message).second) {
    return;
  }
  PodDecision note;
  note.kind = PodDecision::Kind::kDelayed;
  note.name = event.name;
  note.id = lineage.id;
  note.at = absl::InfiniteFuture();
  note.reason = absl::StrCat(PodPhaseName(event.phase), ": ", event.message);
  out.push_back(std::move(note));
}

void PodManager::Reconcile(absl::Time now, Decisions& out) {
  if (ending()) return;
  for (auto& [slot, lineage] : slots_) {
    if (lineage.state == LineageState::kWaiting && lineage.not_before <= now) {
      Create(lineage, now, out);
      by_name_[Name(lineage.id)] = slot;
    }
  }
}

void PodManager::Create(Lineage& lineage, absl::Time now, Decisions& out) {
  if (lineage.id < 0) lineage.id = next_id_++;
  lineage.state = LineageState::kCreating;
  lineage.started = now;
  lineage.leaving = false;
  lineage.deleting = false;
  lineage.terminating = false;
  lineage.delete_reason.clear();
  lineage.message.clear();
  lineage.told.clear();
  PodDecision decision;
  decision.kind = PodDecision::Kind::kCreate;
  decision.name = Name(lineage.id);
  decision.id = lineage.id;
  decision.priority = lineage.priority;
  decision.replaces = lineage.previous_id;
  decision.reason = lineage.why;
  out.push_back(std::move(decision));
}

void PodManager::Delete(Lineage& lineage, const std::string& reason,
                        Decisions& out) {
  if (lineage.deleting) return;
  lineage.deleting = true;
  lineage.delete_reason = reason;
  PodDecision decision;
  decision.kind = PodDecision::Kind::kDelete;
  decision.name = Name(lineage.id);
  decision.id = lineage.id;
  decision.grace = options_.delete_grace;
  decision.reason = reason;
  out.push_back(std::move(decision));
}

// Takes a lineage out of the job. Its pod, if it has one, is deleted; the
// lineage goes when that has ended.
// It hangs, and what data it has is handed out again: nothing to wait for.
void PodManager::Kill(Lineage& lineage, const std::string& reason,
                      Decisions& out) {
  Delete(lineage, reason, out);
  out.back().grace = absl::ZeroDuration();
}

void PodManager::Remove(Slots::iterator it, const std::string& reason,
                        Decisions& out) {
  Lineage& lineage = it->second;
  if (HasPod(lineage)) {
    lineage.removed = true;
    Delete(lineage, reason, out);
    return;
  }
  if (lineage.id >= 0) {
    // A Create that was reported as failed may have succeeded all the same.
    Delete(lineage, reason, out);
    by_name_.erase(Name(lineage.id));
  }
  slots_.erase(it);
}

void PodManager::Ended(Slots::iterator it, const PodEvent& event,
                       absl::Time now, Decisions& out) {
  Lineage& lineage = it->second;
  const bool succeeded = event.phase == PodPhase::kSucceeded;
  std::string reason = DescribePodEnd(event);
  if (lineage.leaving) absl::StrAppend(&reason, ", it had announced to leave");
  if (lineage.deleting) {
    absl::StrAppend(&reason, ", deleted because: ", lineage.delete_reason);
  }
  PodDecision ended;
  ended.kind = PodDecision::Kind::kEnded;
  ended.name = event.name;
  ended.id = lineage.id;
  ended.process_failure = IsProcessFailure(event) && !lineage.deleting;
  ended.reason = reason;
  out.push_back(ended);

  by_name_.erase(event.name);
  lineage.previous_id = std::exchange(lineage.id, -1);
  lineage.pid = 0;
  if (lineage.removed || ending()) {
    slots_.erase(it);
  } else if (ended.process_failure && !std::exchange(lineage.forgiven, false)) {
    ++lineage.failures;
    if (lineage.failures > options_.relaunch_on_worker_failure) {
      GiveUp(lineage,
             absl::StrCat(event.name, " failed: ", reason, "; failure ",
                          lineage.failures, " in its place, ",
                          options_.relaunch_on_worker_failure,
                          " relaunches are allowed "
                          "(--relaunch_on_worker_failure)"),
             out);
    } else {
      Relaunch(lineage, absl::StrCat(event.name, " failed: ", reason), now,
               out);
    }
  } else if (succeeded && !lineage.leaving && !lineage.deleting) {
    lineage.state = LineageState::kDone;
  } else {
    Relaunch(lineage, absl::StrCat(event.name, " was lost: ", reason), now,
             out);
  }
}

void PodManager::Relaunch(Lineage& lineage, const std::string& reason,
                          absl::Time now, Decisions& out) {
  if (!options_.relaunch) {
    GiveUp(lineage,
           absl::StrCat(reason,
                        "; relaunching is switched off "
                        "(--aux_params=disable_relaunch=true)"),
           out);
    return;
  }
  const bool was_stable = now - lineage.started >= options_.stable_after;
  lineage.quick_ends = was_stable ? 0 : lineage.quick_ends + 1;
  lineage.state = LineageState::kWaiting;
  lineage.terminating = false;
  lineage.why = reason;
  lineage.message = reason;
  lineage.not_before = now;
  if (lineage.quick_ends < 2) return;
  lineage.not_before = now + BackoffAfter(lineage.quick_ends - 1);
  PodDecision delayed;
  delayed.kind = PodDecision::Kind::kDelayed;
  delayed.name = Name(lineage.previous_id);
  delayed.id = lineage.previous_id;
  delayed.at = lineage.not_before;
  delayed.reason =
      absl::StrCat("ended soon after its start, ", lineage.quick_ends,
                   " times in a row; next try in ",
                   absl::FormatDuration(lineage.not_before - now));
  out.push_back(std::move(delayed));
}

void PodManager::GiveUp(Lineage& lineage, const std::string& reason,
                        Decisions& out) {
  PodDecision gave_up;
  gave_up.kind = PodDecision::Kind::kGaveUp;
  gave_up.id = lineage.id >= 0 ? lineage.id : lineage.previous_id;
  gave_up.name = Name(gave_up.id);
  gave_up.reason = reason;
  lineage.state = LineageState::kGaveUp;
  lineage.id = -1;
  last_give_up_ = reason;
  out.push_back(std::move(gave_up));
}

void PodManager::EndAll(const std::string& reason, Decisions& out) {
  for (auto it = slots_.begin(); it != slots_.end();) {
    const auto next = std::next(it);
    Remove(it, reason, out);
    it = next;
  }
}

void PodManager::UpdateOutcome(Decisions& out) {
  if (outcome_.state != JobState::kRunning) return;
  if (work_done_) {
    if (all_gone()) SetOutcome(JobState::kSucceeded, "the work is done");
    return;
  }
  if (slots_.empty() || NumActive() > 0) return;
  if (options_.exit_zero_is_done && last_give_up_.empty()) {
    SetOutcome(JobState::kSucceeded, "all workers ended with exit code 0");
    return;
  }
  const std::string reason =
      last_give_up_.empty()
          ? "all workers exited with code 0 before the work was done"
          : absl::StrCat("no worker is left: ", last_give_up_);
  SetOutcome(JobState::kFailed, reason);
  EndAll(reason, out);
}

void PodManager::SetOutcome(JobState state, const std::string& reason) {
  outcome_.state = state;
  outcome_.reason = reason;
}

}  // namespace elasticdl::master
