// Membership: chooses the members of the next world and decides when to form
// it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/rendezvous/membership.h"
#include "membership_text.h"

namespace elasticdl::rendezvous {
namespace {

using Kind = MembershipDecision::Kind;

std::string ChangeCause(const std::vector<int64_t>& joiners,
                        const std::vector<int64_t>& leavers) {
  std::string cause;
  if (!joiners.empty()) cause = text::Workers(joiners) + " joined";
  if (!leavers.empty()) {
    absl::StrAppend(&cause, cause.empty() ? "" : "; ", text::Workers(leavers),
                    " left");
  }
  return cause;
}

}  // namespace

namespace text {

std::vector<int64_t> Ids(const std::vector<WorldMember>& members) {
  std::vector<int64_t> ids;
  ids.reserve(members.size());
  for (const WorldMember& member : members) ids.push_back(member.worker_id);
  return ids;
}

std::string Workers(const std::vector<int64_t>& ids) {
  // Keeps log lines readable.
  constexpr size_t kMostNamed = 8;
  const size_t named = std::min(ids.size(), kMostNamed);
  std::string result =
      absl::StrCat(ids.size() == 1 ? "worker " : "workers ",
                   absl::StrJoin(ids.begin(), ids.begin() + named, ", "));
  if (named < ids.size()) {
    absl::StrAppend(&result, " and ", ids.size() - named, " more");
  }
  return result;
}

}  // namespace text

void Membership::Settle(absl::Time now) {
  const World* newest = try_ ? &try_->world : active_ ? &*active_ : nullptr;
  if (newest != nullptr && NobodyStays() && !newest->last) {
    Drop(now, "all workers are leaving");
  }
  if (try_ || break_) return;
  if (active_) {
    PlanChange(now);
  } else {
    FormWorld(now);
  }
}

void Membership::PlanChange(absl::Time now) {
  // Nobody joins or leaves: nearly always, and then thousands of messages (one
  // from each member that has got the model) must not look at all workers.
  if (num_leaving_ == 0 && workers_.size() == active_->members.size() &&
      workers_.size() >= static_cast<size_t>(options_.min_workers)) {
    if (now >= retry_at_) retry_at_ = absl::InfinitePast();
    return;
  }
  std::vector<int64_t> gone, stayers, leavers, joiners;
  for (const auto& [order, id] : by_order_) {
    const bool leaving = workers_.at(id).leaving;
    if (active_->Has(id)) {
      (leaving ? leavers : stayers).push_back(id);
    } else {
      (leaving ? gone : joiners).push_back(id);
    }
  }
  for (const int64_t id : gone) {
    Release(id,
            absl::StrCat("world ", active_->generation, " does not need it"));
  }
  const size_t min = options_.min_workers;
  if (stayers.size() + joiners.size() < min) {
    if (active_->last && !saved_) {
      retry_at_ = absl::InfinitePast();
      return;
    }
    Drop(now, leavers.empty() ? "min_workers was raised"
                              : text::Workers(leavers) + " left");
    return FormWorld(now);
  }
  if (options_.max_workers > 0) {
    const size_t max = options_.max_workers;
    const size_t room = max - std::min(max, stayers.size());
    joiners.resize(std::min(joiners.size(), room));
  }
  // Joiners that keep failing must not keep a worker from leaving.
  if (!leavers.empty() && stayers.size() >= min &&
      num_abandoned_ >= options_.max_broken) {
    joiners.clear();
  }
  if (now < retry_at_) return;
  retry_at_ = absl::InfinitePast();
  if (leavers.empty() && joiners.empty()) return;
  // If all members that have the model leave, one of them stays until another
  // has it.
  std::vector<int64_t> ids = std::move(stayers);
  const auto level = [this](int64_t id) { return IsLevel(id); };
  if (std::none_of(ids.begin(), ids.end(), level)) {
    const auto kept = std::find_if(leavers.begin(), leavers.end(), level);
    if (kept != leavers.end()) {
      ids.push_back(*kept);
      leavers.erase(kept);
    }
    if (leavers.empty() && joiners.empty()) return;
  }
  ids.insert(ids.end(), joiners.begin(), joiners.end());
  StartTry(now, ids, /*urgent=*/false, ChangeCause(joiners, leavers));
}

void Membership::FormWorld(absl::Time now) {
  const size_t staying = workers_.size() - num_leaving_;
  const bool enough = staying >= static_cast<size_t>(options_.min_workers);
  const bool save = !enough && MustSave();
  if (num_leaving_ > 0) ReleaseLeavers(/*keep_model=*/enough || save);
  if (!enough && !save) return Wait();
  const std::string cause = save && cause_.empty()
                                ? "all workers that have the model are leaving"
                                : FormCause();
  StartTry(now, save ? LevelWorkers() : ChooseMembers(), /*urgent=*/true, cause,
           /*last=*/save);
}

bool Membership::MustSave() const {
  if (!options_.save_last || saved_ || num_level_ == 0) return false;
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.leaving || !entry.second.level;
  });
}

bool Membership::NobodyStays() const {
  return !workers_.empty() && num_leaving_ == workers_.size();
}

// With `keep_model`, leavers that have the trained model are kept if no other
// worker has it.
void Membership::ReleaseLeavers(bool keep_model) {
  bool needed = keep_model;
  std::vector<int64_t> leavers;
  for (const auto& [order, id] : by_order_) {
    const Worker& worker = workers_.at(id);
    if (worker.leaving) leavers.push_back(id);
    if (worker.level && !worker.leaving) needed = false;
  }
  for (const int64_t id : leavers) {
    if (needed && workers_.at(id).level) continue;
    Release(id, keep_model ? "the next world does not need it"
                           : "there is no world to leave");
  }
}

// All workers in the order in which they got ready, up to the maximum.
// FormWorld() has already released the leavers that are not needed; those that
// are left do not count towards the maximum.
std::vector<int64_t> Membership::ChooseMembers() const {
  size_t room = options_.max_workers > 0
                    ? static_cast<size_t>(options_.max_workers)
                    : workers_.size();
  std::vector<int64_t> ids;
  for (const auto& [order, id] : by_order_) {
    const bool leaving = workers_.at(id).leaving;
    if (!leaving && room == 0) continue;
    if (!leaving) --room;
    ids.push_back(id);
  }
  return ids;
}

std::vector<int64_t> Membership::LevelWorkers() const {
  std::vector<int64_t> ids;
  for (const auto& [order, id] : by_order_) {
    if (workers_.at(id).level) ids.push_back(id);
  }
  return ids;
}

void Membership::StartTry(absl::Time now, const std::vector<int64_t>& chosen,
                          bool urgent, const std::string& cause, bool last) {
  bool cold = true;
  // The first one reports for all, so it must have the model if anybody has.
  std::vector<int64_t> ids = chosen;
  std::stable_partition(ids.begin(), ids.end(),
                        [this](int64_t id) { return IsLevel(id); });
  Try next;
  next.urgent = urgent;
  next.cause = cause;
  next.deadline = now + options_.prepare_timeout;
  next.offers.resize(ids.size());
  next.done.resize(ids.size());
  next.loads.resize(ids.size());
  next.num_outside = ids.size();
  World& world = next.world;
  world.generation = next_generation_++;
  world.last = last;
  world.members.reserve(ids.size());
  world.ranks.reserve(ids.size());
  for (const int64_t id : ids) {
    const Worker& worker = workers_.at(id);
    if (worker.level) cold = false;
    world.ranks[id] = world.members.size();
    world.members.push_back({id, worker.host});
  }
  const int64_t shrinks = cold || last ? 0 : Shrinks(ids);
  try_ = std::move(next);
  if (shrinks != 0) NextPhase(now, Phase::kLeveling);
  waiting_reason_.clear();
  DissolveDropped(&try_->world);
  MembershipDecision& prepare =
      Emit(Kind::kPrepare, try_->world.generation, cause);
  prepare.urgent = urgent;
  prepare.cold = cold;
  prepare.last = last;
  prepare.shrinks = shrinks;
  prepare.members = try_->world.members;
  prepare.to = ids;
}

void Membership::DropLost(absl::Time now, const std::string& cause) {
  // During a switch some members may have left the active world.
  if (active_ && active_->can_shrink && !InUrgentPart()) shrinking_ = *active_;
  Drop(now, cause);
}

int64_t Membership::Shrinks(const std::vector<int64_t>& ids) const {
  if (!shrinking_) return 0;
  const bool all = std::all_of(ids.begin(), ids.end(), [this](int64_t id) {
    return shrinking_->Has(id);
  });
  return all ? shrinking_->generation : 0;
}

void Membership::Drop(absl::Time now, const std::string& cause) {
  if (active_ && !pause_since_) pause_since_ = break_ ? break_->since : now;
  if (cause_.empty()) {
    cause_ = cause;
  } else {
    ++num_more_causes_;
  }
  for (const World* world :
       {active_ ? &*active_ : nullptr, try_ ? &try_->world : nullptr}) {
    if (world == nullptr) continue;
    for (const WorldMember& member : world->members) {
      dropped_.push_back(member.worker_id);
    }
  }
  active_.reset();
  try_.reset();
  break_.reset();
  num_abandoned_ = 0;
  retry_at_ = absl::InfinitePast();
}

void Membership::Abandon(absl::Time now, bool retry_at_once) {
  // The delay starts at broken_grace, so that news of a loss can arrive first,
  // and doubles up to 64 times that.
  constexpr int kMostDoublings = 6;
  try_.reset();
  retry_at_ = absl::InfinitePast();
  if (!retry_at_once) {
    retry_at_ = now + options_.broken_grace *
                          (1 << std::min(num_abandoned_, kMostDoublings));
  }
  ++num_abandoned_;
}

void Membership::DissolveDropped(const World* next) {
  std::set<int64_t> to;
  for (const int64_t id : dropped_) {
    if (Knows(id) && !(next != nullptr && next->Has(id))) to.insert(id);
  }
  dropped_.clear();
  if (to.empty()) return;
  const int64_t newest =
      next != nullptr ? next->generation - 1 : next_generation_ - 1;
  MembershipDecision& dissolve =
      Emit(Kind::kDissolve, newest,
           next != nullptr ? "there is no room in the next world" : cause_);
  dissolve.to.assign(to.begin(), to.end());
}

void Membership::Wait() {
  DissolveDropped(nullptr);
  cause_.clear();
  num_more_causes_ = 0;
  const std::string reason = absl::StrCat(
      workers_.size(), " of at least ", options_.min_workers, " workers ready");
  if (reason == waiting_reason_) return;
  waiting_reason_ = reason;
  Emit(Kind::kWaiting, 0, reason);
}

// Why the urgent world is formed.
std::string Membership::FormCause() const {
  if (cause_.empty()) {
    return was_active_ ? absl::StrCat(workers_.size(), " of at least ",
                                      options_.min_workers, " workers ready")
                       : "start";
  }
  if (num_more_causes_ == 0) return cause_;
  return absl::StrCat(cause_, " (and ", num_more_causes_, " more)");
}

bool Membership::InBackground() const {
  return try_ && !try_->urgent && try_->phase != Phase::kLeveling;
}

bool Membership::InUrgentPart() const { return try_ && !InBackground(); }

bool Membership::IsOnlyLevel(int64_t worker_id) const {
  return num_level_ == 1 && IsLevel(worker_id);
}

void Membership::Erase(int64_t worker_id) {
  const auto it = workers_.find(worker_id);
  if (it == workers_.end()) return;
  if (it->second.level) --num_level_;
  if (it->second.leaving) --num_leaving_;
  by_order_.erase(it->second.order);
  workers_.erase(it);
  accusations_.erase(worker_id);
}

void Membership::Evict(int64_t worker_id, const std::string& reason) {
  Erase(worker_id);
  Emit(Kind::kEvict, next_generation_ - 1, reason).worker_id = worker_id;
}

void Membership::Release(int64_t worker_id, const std::string& reason) {
  Erase(worker_id);
  Emit(Kind::kRelease, next_generation_ - 1, reason).worker_id = worker_id;
}

MembershipDecision& Membership::Emit(Kind kind, int64_t generation,
                                     const std::string& reason) {
  MembershipDecision& decision = out_.emplace_back();
  decision.kind = kind;
  decision.generation = generation;
  decision.reason = reason;
  return decision;
}

}  // namespace elasticdl::rendezvous
