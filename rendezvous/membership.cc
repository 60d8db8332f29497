// Membership: handles events. membership_plan.cc chooses the members of the
// next world; membership_late.cc handles timeouts.
#include "elasticdl/rendezvous/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership_text.h"

namespace elasticdl::rendezvous {
namespace {

using Kind = MembershipDecision::Kind;

// Replaces invalid limits by the nearest valid ones.
MembershipOptions Sane(MembershipOptions options) {
  options.min_workers = std::max<int64_t>(options.min_workers, 1);
  if (options.max_workers != 0) {
    options.max_workers = std::max(options.max_workers, options.min_workers);
  }
  options.max_broken = std::max(options.max_broken, 1);
  return options;
}

}  // namespace

Membership::Membership(MembershipOptions options, int64_t next_generation)
    : options_(Sane(options)), next_generation_(next_generation) {}

Membership::Decisions Membership::Take() { return std::exchange(out_, {}); }

Membership::Decisions Membership::Ready(absl::Time now, int64_t worker_id,
                                        const std::string& host) {
  if (Knows(worker_id)) return {};
  Worker& worker = workers_[worker_id];
  worker.host = host;
  worker.order = next_order_++;
  by_order_[worker.order] = worker_id;
  Settle(now);
  return Take();
}

Membership::Decisions Membership::Resume(
    absl::Time now, const std::vector<WorldMember>& members,
    const std::string& reason) {
  for (const WorldMember& member : members) {
    if (Knows(member.worker_id)) continue;
    Worker& worker = workers_[member.worker_id];
    worker.host = member.host;
    worker.order = next_order_++;
    worker.level = true;
    ++num_level_;
    by_order_[worker.order] = member.worker_id;
  }
  cause_ = reason;
  pause_since_ = now;
  Settle(now);
  return Take();
}

Membership::Decisions Membership::Leave(absl::Time now, int64_t worker_id) {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end() || it->second.leaving) return {};
  it->second.leaving = true;
  ++num_leaving_;
  const bool in_world = (active_ && active_->Has(worker_id)) ||
                        (try_ && try_->world.Has(worker_id));
  if (!in_world && !(it->second.level && MustSave())) {
    Release(worker_id, "is not in a world");
  }
  Settle(now);
  return Take();
}

Membership::Decisions Membership::LeaveAll(absl::Time now) {
  for (auto& [id, worker] : workers_) {
    if (!worker.leaving) ++num_leaving_;
    worker.leaving = true;
  }
  Settle(now);
  return Take();
}

Membership::Decisions Membership::Saved(absl::Time now, int64_t worker_id,
                                        int64_t generation) {
  if (!InLastWorld() || !CheckActive(worker_id, generation).ok()) return {};
  saved_ = true;
  Settle(now);
  return Take();
}

Membership::Decisions Membership::Lost(absl::Time now, int64_t worker_id,
                                       const std::string& reason) {
  if (!Knows(worker_id)) return {};
  const bool in_active = active_ && active_->Has(worker_id);
  const bool in_try = try_ && try_->world.Has(worker_id);
  Erase(worker_id);
  if (in_active || (in_try && InUrgentPart())) {
    // The loss explains the broken worlds so far; nobody else is to blame.
    num_broken_ = 0;
    accusations_.clear();
    DropLost(now, absl::StrCat("worker ", worker_id, " lost: ", reason));
  } else if (in_try) {
    Abandon(now, /*retry_at_once=*/true);
  }
  Settle(now);
  shrinking_.reset();
  return Take();
}

bool Membership::Expects(int64_t worker_id, int64_t generation,
                         Phase phase) const {
  return try_ && try_->world.generation == generation && try_->phase == phase &&
         try_->world.Has(worker_id) && Knows(worker_id);
}

bool Membership::Done(int64_t worker_id) {
  const size_t rank = try_->world.ranks.at(worker_id);
  if (try_->done[rank]) return false;
  try_->done[rank] = true;
  return ++try_->num_done == try_->done.size();
}

void Membership::NextPhase(absl::Time now, Phase phase) {
  try_->phase = phase;
  try_->done.assign(try_->done.size(), false);
  try_->num_done = 0;
  try_->deadline = now + (phase == Phase::kLeveling ? options_.enter_timeout
                                                    : options_.connect_timeout);
}

Membership::Decisions Membership::Offered(absl::Time now, int64_t worker_id,
                                          int64_t generation,
                                          const std::string& offer) {
  if (!Expects(worker_id, generation, Phase::kOffering)) return {};
  const size_t rank = try_->world.ranks.at(worker_id);
  if (!try_->done[rank]) try_->offers[rank] = offer;
  if (!Done(worker_id)) return {};
  NextPhase(now, Phase::kConnecting);
  MembershipDecision& offers =
      Emit(Kind::kOffers, generation, "all members have made their offers");
  offers.urgent = try_->urgent;
  offers.members = try_->world.members;
  offers.offers = std::move(try_->offers);
  offers.to = text::Ids(offers.members);
  return Take();
}

Membership::Decisions Membership::Connected(absl::Time now, int64_t worker_id,
                                            int64_t generation) {
  if (!Expects(worker_id, generation, Phase::kConnecting)) return {};
  if (!Done(worker_id)) return {};
  NextPhase(now, Phase::kLeveling);
  if (try_->urgent) return {};
  MembershipDecision& go =
      Emit(Kind::kSwitch, generation,
           absl::StrCat("all are connected: ", try_->cause));
  go.members = try_->world.members;
  go.to = text::Ids(active_->members);
  for (const WorldMember& member : go.members) {
    if (!active_->Has(member.worker_id)) go.to.push_back(member.worker_id);
  }
  return Take();
}

// Members enter an urgent world before all are connected, so one of them may
// already report progress in kConnecting.
bool Membership::MayLevel(int64_t worker_id, int64_t generation) const {
  return Expects(worker_id, generation, Phase::kLeveling) ||
         (Expects(worker_id, generation, Phase::kConnecting) && try_->urgent);
}

Membership::Decisions Membership::Level(absl::Time now, int64_t worker_id,
                                        int64_t generation,
                                        const std::vector<int64_t>& behind,
                                        bool can_shrink) {
  if (!MayLevel(worker_id, generation)) return {};
  // Who reports the model has it.
  if (std::count(behind.begin(), behind.end(), worker_id) > 0) return {};
  const std::set<int64_t> caught_up = std::move(try_->caught_up);
  Activate(now);
  active_->can_shrink = can_shrink;
  std::vector<int64_t> still_behind;
  for (const int64_t id : behind) {
    if (caught_up.count(id) == 0) still_behind.push_back(id);
  }
  SetLevel(still_behind);
  Settle(now);
  return Take();
}

Membership::Decisions Membership::CaughtUp(absl::Time now, int64_t worker_id,
                                           int64_t generation) {
  // It comes on another stream than Level and may overtake it.
  if (MayLevel(worker_id, generation)) {
    try_->caught_up.insert(worker_id);
    return {};
  }
  if (!CheckActive(worker_id, generation).ok() || !Knows(worker_id)) return {};
  Worker& worker = workers_.at(worker_id);
  if (worker.level) return {};
  worker.level = true;
  ++num_level_;
  Settle(now);
  return Take();
}

// Workers that are not in the new world fall behind from now on.
void Membership::SetLevel(const std::vector<int64_t>& behind) {
  for (auto& [id, worker] : workers_) worker.level = active_->Has(id);
  for (const int64_t id : behind) {
    if (Knows(id)) workers_.at(id).level = false;
  }
  num_level_ = static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(),
                    [](const auto& entry) { return entry.second.level; }));
}

void Membership::Activate(absl::Time now) {
  active_ = std::move(try_->world);
  MembershipDecision& decision =
      Emit(Kind::kActive, active_->generation, try_->cause);
  decision.urgent = try_->urgent;
  decision.members = active_->members;
  if (pause_since_) decision.pause = now - *pause_since_;
  try_.reset();
  for (auto& [id, worker] : workers_) worker.failed = 0;
  pause_since_.reset();
  cause_.clear();
  num_more_causes_ = 0;
  was_active_ = true;
  num_abandoned_ = 0;
  saved_ = false;
  save_by_ =
      active_->last ? now + options_.save_timeout : absl::InfiniteFuture();
  // Reports about the previous world no longer matter.
  if (break_) {
    break_->of_active = std::exchange(break_->of_try, {});
    if (break_->of_active.empty()) break_.reset();
  }
}

Membership::Decisions Membership::Broken(absl::Time now, int64_t worker_id,
                                         int64_t generation, int64_t accused,
                                         const std::string& reason) {
  if (!Knows(worker_id)) return {};
  const bool of_try = try_ && try_->world.generation == generation &&
                      try_->world.Has(worker_id);
  const bool of_active =
      active_ && active_->generation == generation && active_->Has(worker_id);
  if (!of_try && !of_active) return {};
  // A leaver fails when its peers switch before its last step has completed. If
  // the world really broke, the members that stay report it too.
  const bool left_behind =
      of_active && try_ && !InBackground() && !try_->world.Has(worker_id);
  if (left_behind) return {};
  if (of_try && InBackground()) {
    BackgroundBroken(now, worker_id, accused);
  } else {
    ReportBreak(now, of_try, worker_id, accused, reason);
  }
  Settle(now);
  return Take();
}

void Membership::ReportBreak(absl::Time now, bool of_try, int64_t worker_id,
                             int64_t accused, const std::string& reason) {
  const World& world = of_try ? try_->world : *active_;
  const size_t size = world.members.size();
  if (!break_) {
    break_.emplace(Break{});
    break_->since = now;
    break_->deadline = now + options_.broken_grace;
    break_->first_reporter = worker_id;
    break_->cause = absl::StrCat("world ", world.generation,
                                 " broke at worker ", worker_id, ": ", reason);
  }
  std::set<int64_t>& reporters = of_try ? break_->of_try : break_->of_active;
  if (!reporters.insert(worker_id).second) return;
  if (world.Has(accused) && Knows(accused)) ++accusations_[accused];
  // A broken world cannot switch, so its background preparation is useless: the
  // next world must be urgent.
  if (!of_try && InBackground()) try_.reset();
  if (reporters.size() < size) return;
  CountBreak(now, break_->cause, break_->first_reporter);
}

// The active world keeps training, so one failure evicts nobody.
void Membership::BackgroundBroken(absl::Time now, int64_t worker_id,
                                  int64_t accused) {
  const int64_t generation = try_->world.generation;
  const bool joiner = !active_->Has(worker_id);
  const bool accused_here = try_->world.Has(accused) && Knows(accused);
  const bool accused_joiner = accused_here && !active_->Has(accused);
  // A joiner that blames an old member may be at fault itself.
  std::vector<int64_t> joiners;
  if (accused_joiner) joiners.push_back(accused);
  if (joiner && !accused_joiner) joiners.push_back(worker_id);
  bool evicted = false;
  for (const int64_t id : joiners) {
    if (++workers_.at(id).failed < options_.max_broken) continue;
    Evict(id, absl::StrCat("caused ", options_.max_broken,
                           " failed preparations, the last for world ",
                           generation));
    evicted = true;
  }
  if (accused_here && !accused_joiner) {
    int& failed = workers_.at(accused).failed;
    failed = evicted ? 0 : failed + 1;
    if (failed >= options_.max_broken && !IsOnlyLevel(accused)) {
      const std::string why =
          absl::StrCat("caused ", failed,
                       " failed preparations, the last for world ", generation);
      Evict(accused, why);
      return Drop(now, absl::StrCat("worker ", accused, " evicted: ", why));
    }
  }
  Abandon(now, /*retry_at_once=*/evicted);
}

void Membership::CountBreak(absl::Time now, const std::string& cause,
                            int64_t first_reporter) {
  std::string why = cause;
  if (++num_broken_ >= options_.max_broken) {
    const int64_t victim = ChooseVictim(first_reporter);
    Evict(victim,
          absl::StrCat("worlds broke ", num_broken_,
                       " times in a row without a step; last: ", cause));
    absl::StrAppend(&why, "; worker ", victim, " evicted");
    num_broken_ = 0;
    accusations_.clear();
  }
  Drop(now, why);
}

// The worker blamed most often, else the first reporter, else the one that got
// ready last. Never the only one that has the trained model, unless there is no
// other.
int64_t Membership::ChooseVictim(int64_t first_reporter) const {
  int64_t victim = -1;
  int most = 0;
  for (const auto& [id, count] : accusations_) {
    if (count < most || !Knows(id) || IsOnlyLevel(id)) continue;
    if (count == most && workers_.at(id).order < workers_.at(victim).order) {
      continue;
    }
    victim = id;
    most = count;
  }
  if (victim >= 0) return victim;
  if (Knows(first_reporter) && !IsOnlyLevel(first_reporter)) {
    return first_reporter;
  }
  const World& world = try_ ? try_->world : *active_;
  for (auto it = world.members.rbegin(); it != world.members.rend(); ++it) {
    if (!IsOnlyLevel(it->worker_id)) return it->worker_id;
  }
  return world.members.front().worker_id;
}

bool Membership::IsLastWorld(int64_t generation) const {
  return (active_ && active_->last && active_->generation == generation) ||
         (try_ && try_->world.last && try_->world.generation == generation);
}

int64_t Membership::MemberAt(int64_t generation, int64_t rank) const {
  for (const World* world :
       {try_ ? &try_->world : nullptr, active_ ? &*active_ : nullptr}) {
    if (world == nullptr || world->generation != generation) continue;
    const auto size = static_cast<int64_t>(world->members.size());
    if (rank >= 0 && rank < size) {
      return world->members[static_cast<size_t>(rank)].worker_id;
    }
  }
  return -1;
}

void Membership::Stepped(int64_t generation) {
  if (!active_ || active_->generation != generation) return;
  num_broken_ = 0;
  accusations_.clear();
}

Membership::Decisions Membership::SetLimits(absl::Time now, int64_t min_workers,
                                            int64_t max_workers) {
  options_.min_workers = min_workers;
  options_.max_workers = max_workers;
  options_ = Sane(options_);
  Settle(now);
  return Take();
}

Membership::Decisions Membership::OnTimer(absl::Time now) {
  if (break_ && now >= break_->deadline) {
    CountBreak(now, break_->cause, break_->first_reporter);
  } else if (try_ && now >= TryDeadline()) {
    HandleLate(now);
  } else if (InLastWorld() && now >= save_by_) {
    saved_ = true;
    save_by_ = absl::InfiniteFuture();
  }
  Settle(now);
  return Take();
}

absl::Time Membership::NextTimer() const {
  absl::Time next = absl::InfiniteFuture();
  if (break_) next = std::min(next, break_->deadline);
  if (try_) next = std::min(next, TryDeadline());
  const bool retries = active_ && !try_ && !break_;
  if (retries && retry_at_ > absl::InfinitePast()) {
    next = std::min(next, retry_at_);
  }
  if (InLastWorld() && !try_ && !break_) next = std::min(next, save_by_);
  return next;
}

int64_t Membership::active_generation() const {
  return active_ ? active_->generation : 0;
}

std::vector<WorldMember> Membership::active_members() const {
  return active_ ? active_->members : std::vector<WorldMember>();
}

absl::Status Membership::CheckActive(int64_t worker_id,
                                     int64_t generation) const {
  if (!active_ || active_->generation != generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker_id, " refers to world ", generation,
                     ", but the active world is ", active_generation(),
                     active_ ? "" : " (none)"));
  }
  if (!active_->Has(worker_id)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", worker_id, " is not a member of world ", generation));
  }
  return absl::OkStatus();
}

bool Membership::HasLevelMember() const { return num_level_ > 0; }

bool Membership::IsLevel(int64_t worker_id) const {
  const auto it = workers_.find(worker_id);
  return it != workers_.end() && it->second.level;
}

bool Membership::Knows(int64_t worker_id) const {
  return workers_.count(worker_id) > 0;
}

size_t Membership::num_workers() const { return workers_.size(); }

}  // namespace elasticdl::rendezvous
