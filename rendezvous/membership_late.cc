// Membership: timeouts while a world is being formed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/rendezvous/membership.h"
#include "membership_text.h"

namespace elasticdl::rendezvous {

void Membership::Loading(absl::Time now, int64_t worker_id, int64_t generation,
                         LoadStage stage) {
  if (!MayLevel(worker_id, generation)) return;
  const size_t rank = try_->world.ranks.at(worker_id);
  Load& load = try_->loads[rank];
  if (!load.entered) --try_->num_outside;
  try_->loading.erase({load.heard, rank});
  load.entered = true;
  load.loaded = stage != LoadStage::kLoading;
  load.heard = now;
  if (!load.loaded) try_->loading.emplace(now, rank);
  try_->moved = std::max(try_->moved, now);
}

void Membership::Announced(absl::Time now, int64_t generation) {
  if (!try_ || try_->world.generation != generation) return;
  if (try_->phase != Phase::kOffering) return;
  try_->deadline = now + options_.prepare_timeout;
}

absl::Time Membership::TryDeadline() const {
  if (try_->phase != Phase::kLeveling) return try_->deadline;
  // The earliest MemberDeadline.
  absl::Time next = absl::InfiniteFuture();
  if (try_->num_outside > 0) next = try_->deadline;
  if (!try_->loading.empty()) {
    next = std::min(next, try_->loading.begin()->first + options_.load_timeout);
  }
  if (next != absl::InfiniteFuture()) return next;
  // All members are ready and the donor's state is being copied. A member that
  // does not get it times out first and reports whom it blames; the extra
  // prepare_timeout leaves time for that report.
  return try_->moved + options_.load_timeout + options_.prepare_timeout;
}

absl::Time Membership::MemberDeadline(const Load& load) const {
  if (!load.entered) return try_->deadline;
  return load.loaded ? absl::InfiniteFuture()
                     : load.heard + options_.load_timeout;
}

void Membership::HandleLate(absl::Time now) {
  if (try_->phase == Phase::kLeveling) return LevelLate(now);
  std::vector<int64_t> late;
  for (size_t rank = 0; rank < try_->done.size(); ++rank) {
    if (!try_->done[rank]) {
      late.push_back(try_->world.members[rank].worker_id);
    }
  }
  if (try_->urgent) {
    UrgentLate(now, late);
  } else {
    BackgroundLate(now, late);
  }
}

void Membership::LevelLate(absl::Time now) {
  const int64_t generation = try_->world.generation;
  std::vector<int64_t> silent, outside;
  // Members that trained together finish their step together, also those that
  // are behind. In a world that broke, those are not held up by anything.
  const auto trains = [this](int64_t id) {
    return active_ ? active_->Has(id) : IsLevel(id);
  };
  bool trainer_entered = false;
  for (size_t rank = 0; rank < try_->loads.size(); ++rank) {
    const Load& load = try_->loads[rank];
    const int64_t id = try_->world.members[rank].worker_id;
    trainer_entered |= load.entered && trains(id);
    if (now < MemberDeadline(load)) continue;
    (load.entered ? silent : outside).push_back(id);
  }
  // If none of them has entered, the step may just be a long one.
  if (!trainer_entered) {
    outside.erase(std::remove_if(outside.begin(), outside.end(), trains),
                  outside.end());
  }
  if (silent.empty() && outside.empty()) {
    return CountBreak(
        now, absl::StrCat("world ", generation, " did not become level"),
        /*first_reporter=*/-1);
  }
  const std::string stuck =
      absl::StrCat("moved no bytes of the model's state for ",
                   absl::FormatDuration(options_.load_timeout),
                   " while loading for world ", generation);
  const std::string away =
      absl::StrCat("did not enter world ", generation, " within ",
                   absl::FormatDuration(options_.enter_timeout));
  for (const int64_t id : silent) Evict(id, stuck);
  for (const int64_t id : outside) Evict(id, away);
  Drop(now, silent.empty()
                ? absl::StrCat(text::Workers(outside), " evicted: ", away)
                : absl::StrCat(text::Workers(silent), " evicted: ", stuck));
}

void Membership::UrgentLate(absl::Time now, const std::vector<int64_t>& late) {
  const bool offering = try_->phase == Phase::kOffering;
  const std::string why =
      absl::StrCat(offering ? "no offer for world " : "not connected in world ",
                   try_->world.generation, " within ",
                   absl::FormatDuration(offering ? options_.prepare_timeout
                                                 : options_.connect_timeout));
  const auto level = [this](int64_t id) { return workers_.at(id).level; };
  const size_t late_level = std::count_if(late.begin(), late.end(), level);
  // A member that hangs while connecting keeps others from connecting. If the
  // connected ones cannot continue alone, evict nobody yet: a member that
  // really hangs makes no offer in the next attempt.
  if (!offering && (late.size() == try_->done.size() ||
                    (num_level_ > 0 && late_level == num_level_))) {
    for (const int64_t id : late) ++accusations_[id];
    return CountBreak(now, absl::StrCat(text::Workers(late), " ", why), -1);
  }
  for (const int64_t id : late) Evict(id, why);
  Drop(now, absl::StrCat(text::Workers(late), " evicted: ", why));
}

void Membership::BackgroundLate(absl::Time now,
                                const std::vector<int64_t>& late) {
  const bool offering = try_->phase == Phase::kOffering;
  const std::string why =
      absl::StrCat(offering ? "no offer for world " : "not connected in world ",
                   try_->world.generation, " within ",
                   absl::FormatDuration(offering ? options_.prepare_timeout
                                                 : options_.connect_timeout));
  // If nobody has connected, a single member may be holding up all the others,
  // and we cannot tell which one.
  const bool sure = offering || late.size() < try_->done.size();
  bool joiner_evicted = false;
  std::vector<int64_t> old;
  for (const int64_t id : late) {
    if (active_->Has(id)) {
      old.push_back(id);
    } else if (sure || ++workers_.at(id).failed >= options_.max_broken) {
      Evict(id, why);
      joiner_evicted = true;
    }
  }
  // An old member is still training, so it is evicted only when it is late
  // repeatedly, and not when a joiner may have held it up.
  std::vector<int64_t> evicted;
  if (offering || (sure && !joiner_evicted)) {
    for (const int64_t id : old) {
      if (++workers_.at(id).failed < options_.max_broken) continue;
      if (!offering && IsOnlyLevel(id)) continue;
      Evict(id, absl::StrCat(why, ", ", options_.max_broken, " times"));
      evicted.push_back(id);
    }
  }
  if (!evicted.empty()) {
    return Drop(now, absl::StrCat(text::Workers(evicted), " evicted: ", why));
  }
  Abandon(now, /*retry_at_once=*/joiner_evicted && old.empty());
}

}  // namespace elasticdl::rendezvous
