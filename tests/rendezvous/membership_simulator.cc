// The simulated master, its invariants and the faults. The workers are in
// membership_simulated_workers.cc.
#include "rendezvous/membership_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::rendezvous {
namespace {

// Far more than a schedule needs that ends.
constexpr int64_t kMostEvents = 200000;

}  // namespace

MembershipSimulator::MembershipSimulator(uint64_t seed)
    : seed_(seed), random_(seed) {
  options_.min_workers = Number(1, 3);
  options_.max_workers = Chance(0.5) ? 0 : Number(3, 6);
  options_.save_last = Chance(0.7);
  // A message may take 30 s (Short()).
  options_.load_timeout = absl::Seconds(Number(70, 120));
  membership_ = std::make_unique<Membership>(options_);
  seconds_to_surprise_ = absl::ToDoubleSeconds(Seconds(0.2, 20));
}

bool MembershipSimulator::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

int64_t MembershipSimulator::Number(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

absl::Duration MembershipSimulator::Seconds(double low, double high) {
  return absl::Seconds(
      std::uniform_real_distribution<double>(low, high)(random_));
}

absl::Duration MembershipSimulator::Short() {
  if (faults_ && Chance(0.003)) return Seconds(1, 30);
  return Chance(0.1) ? Seconds(0, 1) : Seconds(0, 0.02);
}

void MembershipSimulator::At(absl::Duration delay, std::function<void()> run) {
  events_.push({now_ + delay, next_number_++, std::move(run)});
}

bool MembershipSimulator::RunNext() {
  const absl::Time timer = membership_->NextTimer();
  const absl::Time next =
      events_.empty() ? absl::InfiniteFuture() : events_.top().time;
  if (std::min(timer, next) == absl::InfiniteFuture()) return false;
  EXPECT_LT(++counts_.events, kMostEvents) << "too much happens";
  now_ = std::max(now_, std::min(timer, next));
  if (timer <= next) {
    Handle(membership_->OnTimer(now_));
    return true;
  }
  const std::function<void()> run = events_.top().run;
  events_.pop();
  run();
  return true;
}

void MembershipSimulator::Run() {
  const int64_t first = Number(1, 8);
  for (int64_t i = 0; i < first; ++i) {
    At(Short(), [this] { AddWorker(); });
  }
  Surprise();
  At(absl::Seconds(Number(5, 200)), [this] { EndFaults(); });
  while (faults_ && !::testing::Test::HasFailure()) RunNext();
  // A process hangs for two minutes at most. No timeout of a switch (10 min)
  // may be needed.
  peace_ = now_ + absl::Minutes(4);
  const absl::Time deadline = now_ + absl::Minutes(9);
  while (!::testing::Test::HasFailure() && !AllIsWell()) {
    if (!RunNext() || now_ > deadline) {
      ADD_FAILURE() << "no good end: " << known_.size() << " workers, active "
                    << membership_->active_generation() << " at "
                    << absl::FormatTime(now_);
    }
  }
}

// ---- surprises ----

void MembershipSimulator::Surprise() {
  if (!faults_) return;
  At(Seconds(0, 2 * seconds_to_surprise_), [this] {
    if (!faults_) return;
    const int64_t id = AnyWorker();
    switch (Number(0, 11)) {
      case 0:
      case 1:
      case 2:
        Die(id, /*master_sees=*/true);
        break;
      case 3:
        Hang(id);
        break;
      case 4:
        Cut(id);
        break;
      case 5:
        if (workers_.count(id) > 0) workers_.at(id).bad = true;
        break;
      case 6:
        if (!worlds_.empty()) Break(worlds_.rbegin()->first, id);
        break;
      case 7:
        AskToLeave(id);
        break;
      case 8:
        AskAllToLeave();
        break;
      case 9:
        options_.min_workers = Number(1, 4);
        options_.max_workers = Chance(0.3) ? 0 : Number(1, 6);
        Handle(membership_->SetLimits(now_, options_.min_workers,
                                      options_.max_workers));
        break;
      default:
        AddWorker();
    }
    Surprise();
  });
}

void MembershipSimulator::AddWorker() {
  if (known_.size() >= 8) return;
  const int64_t id = next_id_++;
  workers_[id];
  ToMaster(id, [this, id] {
    known_.insert(id);
    Handle(membership_->Ready(now_, id, absl::StrCat("host", id % 3)));
  });
}

void MembershipSimulator::AskToLeave(int64_t id) {
  if (!Acts(id)) return;
  ToMaster(id, [this, id] {
    if (known_.count(id) > 0) leaving_.insert(id);
    Handle(membership_->Leave(now_, id));
  });
}

void MembershipSimulator::AskAllToLeave() {
  if (Chance(0.2)) {
    leaving_ = known_;
    Handle(membership_->LeaveAll(now_));
    return;
  }
  std::vector<int64_t> ids;
  for (const auto& [id, worker] : workers_) ids.push_back(id);
  for (const int64_t id : ids) AskToLeave(id);
}

int64_t MembershipSimulator::AnyWorker() {
  std::vector<int64_t> ids;
  for (const auto& [id, worker] : workers_) {
    if (worker.alive) ids.push_back(id);
  }
  return ids.empty() ? -1 : ids[Number(0, ids.size() - 1)];
}

// The process ends. Others that are connected to it notice.
void MembershipSimulator::Exit(int64_t id) {
  const auto it = workers_.find(id);
  if (it == workers_.end() || !it->second.alive) return;
  it->second.alive = false;
  ++counts_.deaths;
  DropWorld(id);
  DropPrepared(id);
  if (faults_ && Chance(0.7)) At(Seconds(0, 5), [this] { AddWorker(); });
}

void MembershipSimulator::Die(int64_t id, bool master_sees) {
  if (workers_.count(id) == 0 || !workers_.at(id).alive) return;
  Exit(id);
  if (!master_sees) return;
  ToMaster(id, [this, id] {
    known_.erase(id);
    leaving_.erase(id);
    level_.erase(id);
    Handle(membership_->Lost(now_, id, "stream closed"));
  });
}

void MembershipSimulator::Hang(int64_t id) {
  if (!Acts(id)) return;
  workers_.at(id).hung = true;
  At(Seconds(10, 120), [this, id] { Die(id, /*master_sees=*/true); });
}

// The master hears nothing of it any more, its peers do for a while.
void MembershipSimulator::Cut(int64_t id) {
  if (!Acts(id) || workers_.at(id).cut) return;
  ToMaster(id, [this, id] {
    known_.erase(id);
    leaving_.erase(id);
    level_.erase(id);
    Handle(membership_->Lost(now_, id, "no keepalive"));
  });
  workers_.at(id).cut = true;
  At(Seconds(0, 20), [this, id] { Exit(id); });
}

void MembershipSimulator::EndFaults() {
  faults_ = false;
  for (auto& [id, worker] : workers_) worker.bad = false;
}

// ---- the master ----

void MembershipSimulator::ToMaster(int64_t id, std::function<void()> run) {
  Worker& worker = workers_.at(id);
  // Some news of a cut worker still come: they were on their way.
  if (worker.cut && Chance(0.8)) return;
  worker.last_to_master = std::max(worker.last_to_master, now_ + Short());
  At(worker.last_to_master - now_, std::move(run));
}

void MembershipSimulator::Handle(const Membership::Decisions& decisions) {
  for (const MembershipDecision& decision : decisions) {
    Check(decision);
    Deliver(decision);
  }
  CheckNotStuck();
}

void MembershipSimulator::Check(const MembershipDecision& decision) {
  EXPECT_FALSE(decision.reason.empty());
  for (const int64_t id : decision.to) EXPECT_EQ(known_.count(id), 1u) << id;
  for (const WorldMember& member : decision.members) {
    EXPECT_EQ(known_.count(member.worker_id), 1u) << member.worker_id;
  }
  switch (decision.kind) {
    case Kind::kPrepare:
      return CheckPrepare(decision);
    case Kind::kOffers:
      EXPECT_EQ(decision.generation, newest_);
      for (size_t rank = 0; rank < decision.offers.size(); ++rank) {
        EXPECT_EQ(decision.offers[rank],
                  absl::StrCat(decision.members[rank].worker_id, "@",
                               decision.generation));
      }
      return;
    case Kind::kSwitch:
      ++counts_.switches;
      EXPECT_EQ(decision.generation, newest_);
      return;
    case Kind::kActive:
      ++counts_.active;
      EXPECT_EQ(decision.generation, newest_);
      EXPECT_GE(decision.pause, absl::ZeroDuration());
      last_active_.clear();
      for (const WorldMember& member : decision.members) {
        last_active_.push_back(member.worker_id);
      }
      level_.clear();
      level_.insert(last_active_.begin(), last_active_.end());
      saved_ = false;
      return;
    case Kind::kEvict:
    case Kind::kRelease: {
      const int64_t id = decision.worker_id;
      ++(decision.kind == Kind::kEvict ? counts_.evicted : counts_.released);
      EXPECT_EQ(known_.erase(id), 1u) << id;
      const bool level = level_.erase(id) > 0;
      const bool left = leaving_.erase(id) > 0;
      if (decision.kind == Kind::kEvict) {
        if (absl::StrContains(decision.reason, "moved no bytes")) {
          ++counts_.silent;
          // Only who really hangs, or is not heard, is taken for stuck.
          const Worker& worker = workers_.at(id);
          EXPECT_TRUE(worker.hung || worker.cut || !worker.alive) << id;
        }
        EXPECT_LT(now_, peace_) << "worker " << id << " did nothing wrong";
        return;
      }
      EXPECT_TRUE(left) << id;
      // The last one that has the model goes only if nobody can take it over.
      if (level && level_.empty()) {
        EXPECT_LT(NumStaying(), static_cast<size_t>(options_.min_workers));
        // And not before it is saved.
        EXPECT_TRUE(saved_ || !options_.save_last) << id;
      }
      return;
    }
    case Kind::kDissolve:
      ++counts_.dissolved;
      return;
    case Kind::kWaiting:
      EXPECT_LT(NumStaying(), static_cast<size_t>(options_.min_workers));
  }
}

void MembershipSimulator::CheckPrepare(const MembershipDecision& decision) {
  EXPECT_GT(decision.generation, newest_);
  newest_ = decision.generation;
  std::vector<int64_t> ids, survivors;
  for (const WorldMember& member : decision.members) {
    ids.push_back(member.worker_id);
  }
  EXPECT_EQ(decision.to, ids);
  // Survivors come first, in their order.
  const std::set<int64_t> members(ids.begin(), ids.end());
  EXPECT_EQ(members.size(), ids.size());
  bool level = false;
  for (const int64_t id : last_active_) {
    if (members.count(id) > 0 && level_.count(id) > 0) survivors.push_back(id);
  }
  ASSERT_LE(survivors.size(), ids.size());
  EXPECT_TRUE(std::equal(survivors.begin(), survivors.end(), ids.begin()));
  for (const int64_t id : ids) level = level || level_.count(id) > 0;
  EXPECT_EQ(decision.cold, !level);
  EXPECT_EQ(decision.cold, level_.empty());
  if (decision.cold) ++counts_.cold;
  if (decision.shrinks != 0) {
    EXPECT_TRUE(decision.urgent && !decision.cold && !decision.last);
    // All are in that world, and in none after it.
    for (const int64_t id : ids) {
      EXPECT_EQ(workers_.at(id).entered, decision.shrinks) << id;
    }
  }
  const auto min = static_cast<size_t>(options_.min_workers);
  if (decision.last) {
    // Only when nobody could take the model over, and of all that have it.
    EXPECT_TRUE(decision.urgent);
    EXPECT_LT(NumStaying(), min);
    EXPECT_EQ(members, level_);
    for (const int64_t id : ids) EXPECT_EQ(leaving_.count(id), 1u) << id;
  } else {
    EXPECT_GE(ids.size(), min);
    EXPECT_GE(NumStaying(), min);
  }
  World& world = worlds_[decision.generation];
  world.members = ids;
  world.urgent = decision.urgent;
  world.cold = decision.cold;
  world.last = decision.last;
}

// Whenever there is no timer, there is nothing left to do or somebody trains.
void MembershipSimulator::CheckNotStuck() {
  EXPECT_EQ(membership_->HasLevelMember(), !level_.empty());
  EXPECT_EQ(membership_->num_workers(), known_.size());
  if (membership_->NextTimer() != absl::InfiniteFuture()) return;
  if (membership_->active_generation() == 0) {
    EXPECT_TRUE(leaving_.empty());
    EXPECT_LT(NumStaying(), static_cast<size_t>(options_.min_workers));
    return;
  }
  EXPECT_TRUE(leaving_.empty());
  const size_t size = membership_->active_members().size();
  const size_t max = options_.max_workers > 0
                         ? std::max(options_.max_workers, options_.min_workers)
                         : known_.size();
  EXPECT_GE(size, std::min(known_.size(), max));
}

size_t MembershipSimulator::NumStaying() const {
  return known_.size() - leaving_.size();
}

void MembershipSimulator::Deliver(const MembershipDecision& decision) {
  std::vector<int64_t> to = decision.to;
  if (decision.worker_id >= 0) to.push_back(decision.worker_id);
  for (const int64_t id : to) {
    Worker& worker = workers_.at(id);
    worker.last_to_worker = std::max(worker.last_to_worker, now_ + Short());
    At(worker.last_to_worker - now_,
       [this, id, decision] { Receive(id, decision); });
  }
}

void MembershipSimulator::HandleLevel(int64_t id, int64_t generation,
                                      Model model) {
  const Membership::Decisions decisions =
      membership_->Level(now_, id, generation, /*behind=*/{},
                         /*can_shrink=*/Chance(0.5));
  if (!decisions.empty() && decisions[0].kind == Kind::kActive) {
    // What was committed is in the model, unless all that had it are gone.
    if (!worlds_.at(generation).cold) {
      EXPECT_EQ(model.lineage, committed_.lineage);
      EXPECT_GE(model.step, committed_.step);
    }
    EXPECT_GT(generation, newest_committed_);
    newest_committed_ = generation;
    committed_ = model;
  }
  Handle(decisions);
}

void MembershipSimulator::HandleProgress(int64_t id, int64_t generation,
                                         Model model) {
  if (!membership_->CheckActive(id, generation).ok()) return;
  membership_->Stepped(generation);
  ++counts_.commits;
  // Only one world commits at a time, and the worlds do it in their order.
  EXPECT_GE(generation, newest_committed_);
  newest_committed_ = generation;
  EXPECT_EQ(model.lineage, committed_.lineage);
  committed_.step = std::max(committed_.step, model.step);
  for (const int64_t member : level_) {
    EXPECT_FALSE(workers_.at(member).model < committed_) << member;
  }
}

void MembershipSimulator::HandleSaved(int64_t id, int64_t generation,
                                      Model model) {
  if (membership_->CheckActive(id, generation).ok()) {
    ++counts_.saved;
    saved_ = true;
    // Nothing was trained since the world is level.
    EXPECT_FALSE(model < committed_ || committed_ < model);
  }
  Handle(membership_->Saved(now_, id, generation));
}

// All that are here and can be in a world train in it.
bool MembershipSimulator::AllIsWell() {
  for (const auto& [id, worker] : workers_) {
    if (worker.alive && (worker.hung || worker.cut)) return false;
    if (worker.alive != (known_.count(id) > 0)) return false;
  }
  if (!leaving_.empty()) return false;
  if (membership_->NextTimer() != absl::InfiniteFuture()) return false;
  // CheckNotStuck() has looked at the size.
  const int64_t generation = membership_->active_generation();
  for (const int64_t id : known_) {
    if (generation == 0 && workers_.at(id).world != 0) return false;
  }
  if (generation == 0) return true;
  for (const WorldMember& member : membership_->active_members()) {
    if (workers_.at(member.worker_id).world != generation) return false;
  }
  return worlds_.at(generation).level && !worlds_.at(generation).broken;
}

}  // namespace elasticdl::rendezvous
