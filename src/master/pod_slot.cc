#include "pod_slot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"

namespace elasticdl::master {
namespace {

using State = PodSlot::State;

// A server's share of the model is there for the whole job, so no exit code
// means that its work is done. Exit 0 is what a server does on SIGTERM.
bool ExitZeroIsDone(PodType type) { return type == PodType::kWorker; }

// The end of a pod that was deleted here, for this reason.
std::string DescribeDeleted(PodEvent event, const std::string& reason) {
  std::string text = absl::StrCat("deleted (", reason, ")");
  // Once is enough.
  if (event.reason == PodEndReason::kDeleted) {
    event.reason = PodEndReason::kNone;
  }
  const bool known = event.signal != 0 || event.exit_code >= 0 ||
                     event.reason != PodEndReason::kNone;
  if (known) absl::StrAppend(&text, ", ", DescribePodEnd(event));
  return text;
}

}  // namespace

PodSlot::PodSlot(std::shared_ptr<const SlotRules> rules, std::string priority,
                 std::string why)
    : rules_(std::move(rules)),
      priority_(std::move(priority)),
      why_(std::move(why)) {}

// started_ stays in the infinite past: the pod has outlived a master, so its
// next end is not one soon after its start.
PodSlot::PodSlot(std::shared_ptr<const SlotRules> rules, const PodEvent& pod)
    : rules_(std::move(rules)),
      state_(pod.phase == PodPhase::kRunning ? State::kRunning
                                             : State::kCreating),
      priority_(pod.priority),
      name_(pod.name),
      id_(pod.id),
      attempt_(pod.attempt),
      may_exist_(true),
      adopted_(true),
      pid_(pod.pid),
      restarts_(pod.restarts),
      terminating_(pod.terminating),
      message_(pod.message) {}

bool PodSlot::has_pod() const {
  return state_ == State::kCreating || state_ == State::kRunning;
}

bool PodSlot::active() const {
  return !retired_ && (has_pod() || state_ == State::kWaiting);
}

PodInfo PodSlot::info() const {
  PodInfo info;
  const bool ending = deleting_ || terminating_;
  info.state = state_ == State::kWaiting   ? "Waiting"
               : ending                    ? "Terminating"
               : state_ == State::kRunning ? "Running"
                                           : "Pending";
  info.name = name_;
  info.id = id_;
  info.type = rules_->type;
  info.priority = priority_;
  info.pid = pid_;
  info.failures = failures_;
  info.message = message_;
  return info;
}

absl::Time PodSlot::next_wake() const {
  return state_ == State::kWaiting ? std::min(not_before_, attach_by_)
                                   : attach_by_;
}

bool PodSlot::due(absl::Time now) const {
  return state_ == State::kWaiting && not_before_ <= now;
}

absl::Duration PodSlot::BackoffAfter(int64_t count) const {
  absl::Duration delay = rules_->backoff_initial;
  for (int64_t i = 1; i < count && delay < rules_->backoff_max; ++i) {
    delay *= 2;
  }
  return std::min(delay, rules_->backoff_max);
}

PodDecision PodSlot::Decide(PodDecision::Kind kind,
                            const std::string& reason) const {
  PodDecision decision;
  decision.kind = kind;
  decision.type = rules_->type;
  decision.name = name_;
  decision.id = id_;
  decision.attempt = attempt_;
  decision.reason = reason;
  return decision;
}

// A pod comes ----------------------------------------------------------------

void PodSlot::Name(int64_t id, int64_t attempt) {
  ELASTICDL_CHECK(!may_exist_);
  previous_id_ = id_;
  id_ = id;
  attempt_ = attempt;
  restarts_ = 0;
  name_ = PodName(rules_->type, rules_->job_name, id, attempt);
}

void PodSlot::Create(absl::Time now, PodDecisions& out) {
  state_ = State::kCreating;
  may_exist_ = true;
  started_ = now;
  leaving_ = deleting_ = hung_ = terminating_ = adopted_ = false;
  delete_reason_.clear();
  const bool again = create_errors_ > 0;
  // A further try says the same as the one before: what was reported about this
  // pod is not reported again.
  if (!again) {
    message_.clear();
    reported_.clear();
  }
  PodDecision decision = Decide(PodDecision::Kind::kCreate, why_);
  decision.priority = priority_;
  if (!again) decision.replaces = previous_id_;
  out.push_back(std::move(decision));
}

void PodSlot::OnCreateFailed(const absl::Status& error, absl::Time now,
                             PodDecisions& out) {
  // Late news: the pod has shown itself, or the next try is already due.
  if (state_ != State::kCreating) return;
  const std::string why =
      absl::StrCat("could not create ", name_, ": ", error.message());
  if (retired_) {
    may_exist_ = false;
    state_ = State::kGone;
  } else if (absl::IsInvalidArgument(error) || absl::IsNotFound(error)) {
    may_exist_ = false;
    GiveUp(why, out);
  } else {
    // The name stays known: the error may be about the answer, not the pod.
    ++create_errors_;
    state_ = State::kWaiting;
    not_before_ = now + BackoffAfter(create_errors_);
    why_ = absl::StrCat("try ", create_errors_ + 1);
    message_ = why;
    if (!reported_.insert(why).second) return;
    PodDecision delayed = Decide(PodDecision::Kind::kDelayed, why);
    delayed.at = not_before_;
    out.push_back(std::move(delayed));
  }
}

void PodSlot::OnAlive(const PodEvent& event, absl::Time now,
                      PodDecisions& out) {
  create_errors_ = 0;
  terminating_ = event.terminating;
  message_ = event.message;
  if (event.phase == PodPhase::kRunning && state_ != State::kRunning) {
    state_ = State::kRunning;
    started_ = now;
    pid_ = event.pid;
    ExpectAttach(now);
  } else if (state_ == State::kWaiting) {
    state_ = State::kCreating;
  }
  if (event.restarts > restarts_) OnRestarted(event, out);
  // Reasons may alternate (ErrImagePull, ImagePullBackOff) for hours: each is
  // reported once.
  if (event.message.empty() || !reported_.insert(event.message).second) return;
  PodDecision note =
      Decide(PodDecision::Kind::kDelayed,
             absl::StrCat(PodPhaseName(event.phase), ": ", event.message));
  note.at = absl::InfiniteFuture();
  out.push_back(std::move(note));
}

// A worker's successor has another id, so only servers may be started again in
// their pods.
void PodSlot::OnRestarted(const PodEvent& event, PodDecisions& out) {
  restarts_ = event.restarts;
  if (rules_->type != PodType::kPs || retired_ || deleting_) return;
  const std::string reason = absl::StrCat(
      "started again in its pod", event.restart_reason.empty() ? "" : " after ",
      event.restart_reason);
  if (event.restart_failure && ++failures_ > rules_->max_failures) {
    return GiveUp(absl::StrCat(name_, " was ", reason, "; failure ", failures_,
                               " in its place, --relaunch_on_worker_failure=",
                               rules_->max_failures),
                  out);
  }
  PodDecision note = Decide(PodDecision::Kind::kDelayed, reason);
  note.at = absl::InfiniteFuture();
  out.push_back(std::move(note));
}

void PodSlot::ExpectAttach(absl::Time now) {
  attach_by_ = now + rules_->attach_timeout;
}

void PodSlot::OnTimer(absl::Time now,
                      const std::function<bool(int64_t id)>& attached,
                      PodDecisions& out) {
  if (attach_by_ > now) return;
  attach_by_ = absl::InfiniteFuture();
  if (state_ != State::kRunning || deleting_ || attached(id_)) return;
  Kill(
      absl::StrCat("has run for ", absl::FormatDuration(rules_->attach_timeout),
                   " without coming to the master"),
      out);
}

// A pod goes -----------------------------------------------------------------

void PodSlot::Delete(const std::string& reason, absl::Duration grace,
                     PodDecisions& out) {
  if (deleting_) return;
  deleting_ = true;
  delete_reason_ = reason;
  PodDecision decision = Decide(PodDecision::Kind::kDelete, reason);
  decision.grace = grace;
  out.push_back(std::move(decision));
}

void PodSlot::Kill(const std::string& reason, PodDecisions& out) {
  if (!has_pod() || deleting_) return;
  hung_ = true;
  // What data it has is handed out again: there is nothing to wait for.
  Delete(reason, absl::ZeroDuration(), out);
}

void PodSlot::Remove(const std::string& reason, PodDecisions& out) {
  retired_ = true;
  if (may_exist_) Delete(reason, rules_->delete_grace, out);
  if (has_pod()) return;  // until it has ended
  // The pod may exist although its creation was reported as failed. It was
  // deleted above; nobody waits for it.
  may_exist_ = false;
  state_ = State::kGone;
}

void PodSlot::OnEnded(const PodEvent& event, absl::Time now,
                      PodDecisions& out) {
  std::string reason = deleting_ ? DescribeDeleted(event, delete_reason_)
                                 : DescribePodEnd(event);
  if (leaving_) absl::StrAppend(&reason, ", it had announced to leave");
  PodDecision ended = Decide(PodDecision::Kind::kEnded, reason);
  // After our own SIGTERM any exit code is welcome.
  ended.process_failure = IsProcessFailure(event) && !deleting_;
  // It was killed because it did not answer, and was crashing already: writing
  // a core file takes seconds.
  if (hung_ && EndedByCrash(event)) ended.process_failure = true;
  ended.asked = leaving_ || (deleting_ && !hung_);
  ended.deleted = deleting_;
  out.push_back(ended);

  may_exist_ = false;
  create_errors_ = 0;
  pid_ = 0;
  attach_by_ = absl::InfiniteFuture();
  // It holds for this end only, whatever kind it is.
  const bool forgiven = std::exchange(forgiven_, false);
  // The master before this one may have known that it was leaving.
  const bool may_leave = leaving_ || (adopted_ && !rules_->exit_zero_is_done);
  const bool done = event.phase == PodPhase::kSucceeded && !may_leave &&
                    !deleting_ && ExitZeroIsDone(rules_->type);
  if (retired_) {
    state_ = State::kGone;
  } else if (ended.process_failure && !forgiven) {
    ++failures_;
    const std::string failed = absl::StrCat(name_, " failed: ", reason);
    if (failures_ > rules_->max_failures) {
      GiveUp(absl::StrCat(failed, "; failure ", failures_,
                          " in its place, --relaunch_on_worker_failure=",
                          rules_->max_failures),
             out);
    } else {
      Relaunch(failed, /*back_off=*/true, now, out);
    }
  } else if (done) {
    state_ = State::kDone;
  } else {
    // A node that refuses its pods will refuse the next one, too.
    Relaunch(absl::StrCat(name_, " was lost: ", reason),
             /*back_off=*/ended.process_failure || hung_ || event.refused, now,
             out);
  }
}

void PodSlot::Relaunch(const std::string& reason, bool back_off, absl::Time now,
                       PodDecisions& out) {
  if (!rules_->relaunch) {
    GiveUp(absl::StrCat(reason,
                        "; relaunching is switched off "
                        "(--aux_params=disable_relaunch=true)"),
           out);
    return;
  }
  // Crashes and losses are counted apart: being taken away between two crashes
  // does not hide that it crashes.
  const bool was_stable = now - started_ >= rules_->stable_after;
  if (was_stable) quick_failures_ = quick_losses_ = 0;
  int64_t& count = back_off ? quick_failures_ : quick_losses_;
  if (!was_stable) ++count;
  state_ = State::kWaiting;
  deleting_ = false;
  terminating_ = false;
  why_ = reason;
  message_ = reason;
  not_before_ = now;
  if (count < 2) return;
  // Waiting longer would not keep anybody from taking it away again.
  not_before_ =
      now + (back_off ? BackoffAfter(count - 1) : rules_->backoff_initial);
  PodDecision delayed =
      Decide(PodDecision::Kind::kDelayed,
             absl::StrCat("ended soon after its start, ", count,
                          " times in a row; next try in ",
                          absl::FormatDuration(not_before_ - now)));
  delayed.at = not_before_;
  out.push_back(std::move(delayed));
}

void PodSlot::GiveUp(const std::string& reason, PodDecisions& out) {
  state_ = State::kGaveUp;
  out.push_back(Decide(PodDecision::Kind::kGaveUp, reason));
}

}  // namespace elasticdl::master
