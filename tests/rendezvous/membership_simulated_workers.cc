// The worker's side of the protocol, simulated.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/membership_simulator.h"

namespace elasticdl::rendezvous {
namespace {

// A collective or a connect that hangs is given up after so long. Below the
// prepare timeout, as in a worker.
constexpr absl::Duration kCollectiveTimeout = absl::Seconds(10);

}  // namespace

bool MembershipSimulator::Acts(int64_t id) const {
  const auto it = workers_.find(id);
  return it != workers_.end() && it->second.alive && !it->second.hung;
}

void MembershipSimulator::Receive(int64_t id,
                                  const MembershipDecision& message) {
  if (!workers_.at(id).alive) return;
  // The stream is closed, even to one that hangs.
  if (message.kind == Kind::kEvict) {
    At(Seconds(0, 5), [this, id] { Exit(id); });
    return;
  }
  if (!Acts(id) || workers_.at(id).cut) return;
  Worker& worker = workers_.at(id);
  const int64_t generation = message.generation;
  switch (message.kind) {
    case Kind::kPrepare:
      if (message.urgent) DropWorld(id);
      DropPrepared(id);
      worker.prepared = generation;
      if (message.shrinks != 0) {
        At(Short(), [this, id, generation] { EnterShrunk(id, generation); });
        return;
      }
      ToMaster(id, [this, id, generation] {
        Handle(membership_->Offered(now_, id, generation,
                                    absl::StrCat(id, "@", generation)));
      });
      return;
    case Kind::kOffers:
      if (worker.prepared == generation) Connect(id, generation);
      return;
    case Kind::kSwitch:
      if (worker.world != 0) {
        worker.switch_to = generation;
      } else if (worker.prepared == generation &&
                 worlds_.at(generation).connected.count(id) > 0) {
        Enter(id, generation);
      }
      return;
    case Kind::kDissolve:
      if (worker.world <= generation) DropWorld(id);
      if (worker.prepared <= generation) DropPrepared(id);
      return;
    case Kind::kRelease:
      At(Short(), [this, id] { Exit(id); });
      return;
    default:
      return;
  }
}

void MembershipSimulator::DropWorld(int64_t id) {
  Worker& worker = workers_.at(id);
  worker.switch_to = 0;
  const int64_t world = std::exchange(worker.world, 0);
  if (world != 0) Break(world, id);
}

void MembershipSimulator::DropPrepared(int64_t id) {
  const int64_t world = std::exchange(workers_.at(id).prepared, 0);
  if (world != 0) Break(world, id);
}

void MembershipSimulator::Connect(int64_t id, int64_t generation) {
  World& world = worlds_.at(generation);
  if (world.broken) {
    At(Short(), [this, id, generation] { Fail(id, generation, -1); });
    return;
  }
  world.connecting.insert(id);
  if (world.connecting.size() == world.members.size()) {
    for (const int64_t member : world.members) {
      At(Short(),
         [this, member, generation] { ConnectDone(member, generation); });
    }
    return;
  }
  At(kCollectiveTimeout, [this, id, generation] {
    const World& late = worlds_.at(generation);
    if (late.connecting.size() == late.members.size()) return;
    int64_t accused = -1;
    for (const int64_t member : late.members) {
      if (late.connecting.count(member) == 0 && Chance(0.7)) accused = member;
    }
    if (workers_.at(id).prepared == generation) Fail(id, generation, accused);
  });
}

void MembershipSimulator::ConnectDone(int64_t id, int64_t generation) {
  World& world = worlds_.at(generation);
  if (!Acts(id) || workers_.at(id).prepared != generation) return;
  if (world.broken) return;  // Fail() comes
  world.connected.insert(id);
  ToMaster(id, [this, id, generation] {
    Handle(membership_->Connected(now_, id, generation));
  });
  if (world.urgent) Enter(id, generation);
}

void MembershipSimulator::EnterShrunk(int64_t id, int64_t generation) {
  if (!Acts(id) || workers_.at(id).prepared != generation) return;
  // Sometimes it cannot.
  if (faults_ && Chance(0.02)) return Fail(id, generation, -1);
  ++counts_.shrunk;
  Enter(id, generation);
}

void MembershipSimulator::Enter(int64_t id, int64_t generation) {
  Worker& worker = workers_.at(id);
  World& world = worlds_.at(generation);
  worker.world = generation;
  worker.entered = generation;
  worker.prepared = 0;
  worker.switch_to = 0;
  if (world.broken) {
    At(Short(), [this, id, generation] { Fail(id, generation, -1); });
    return;
  }
  TellLoading(id, generation, LoadStage::kLoading);
  LoadOn(id, generation, faults_ && Chance(0.05) ? Number(1, 40) : 0);
}

void MembershipSimulator::TellLoading(int64_t id, int64_t generation,
                                      LoadStage stage) {
  ToMaster(id, [this, id, generation, stage] {
    membership_->Loading(now_, id, generation, stage);
  });
}

// Each part takes less than the limit, all of them far more.
void MembershipSimulator::LoadOn(int64_t id, int64_t generation,
                                 int64_t parts) {
  World& world = worlds_.at(generation);
  if (!Acts(id) || workers_.at(id).world != generation || world.broken) return;
  if (parts > 0 && faults_) {
    ++counts_.slow_parts;
    At(options_.load_timeout * 0.5, [this, id, generation, parts] {
      if (Acts(id)) TellLoading(id, generation, LoadStage::kLoading);
      LoadOn(id, generation, parts - 1);
    });
    return;
  }
  TellLoading(id, generation, LoadStage::kLoaded);
  world.entered.insert(id);
  if (world.entered.size() < world.members.size()) return;
  At(Short(), [this, generation] { FinishLevel(generation); });
}

bool MembershipSimulator::CanRun(int64_t generation) {
  const World& world = worlds_.at(generation);
  if (world.broken) return false;
  for (const int64_t id : world.members) {
    const Worker& worker = workers_.at(id);
    if (!Acts(id) || (worker.bad && world.members.size() > 1)) {
      At(worker.bad ? Short() : kCollectiveTimeout,
         [this, id, generation] { Break(generation, id); });
      return false;
    }
  }
  return true;
}

MembershipSimulator::Model MembershipSimulator::BestModel(const World& world,
                                                          int64_t generation) {
  // Half of the steps were in the checkpoint.
  if (world.cold) return {generation, committed_.step / 2};
  Model best;
  for (const int64_t id : world.members) {
    best = std::max(best, workers_.at(id).model);
  }
  return best;
}

void MembershipSimulator::FinishLevel(int64_t generation) {
  if (!CanRun(generation)) return;
  World& world = worlds_.at(generation);
  const Model best = BestModel(world, generation);
  int64_t donor = world.members[0];
  for (const int64_t id : world.members) {
    Worker& worker = workers_.at(id);
    if (!world.cold && !(worker.model < best)) donor = id;
    worker.model = best;
  }
  world.level = true;
  newest_level_ = std::max(newest_level_, generation);
  ToMaster(donor, [this, donor, generation, best] {
    HandleLevel(donor, generation, best);
  });
  if (world.last) Save(donor, generation);
  At(Short(), [this, generation] { Step(generation); });
}

// The member that speaks for all saves the model, however long that takes, and
// says so if it still is in that world.
void MembershipSimulator::Save(int64_t id, int64_t generation) {
  At(Chance(0.5) ? Short() : Seconds(0, 20), [this, id, generation] {
    const Worker& worker = workers_.at(id);
    if (!Acts(id) || worker.world != generation) return;
    ToMaster(id, [this, id, generation, model = worker.model] {
      HandleSaved(id, generation, model);
    });
  });
}

// The world all members have seen the switch to, or 0.
int64_t MembershipSimulator::SwitchTarget(const World& world) {
  const int64_t target = workers_.at(world.members[0]).switch_to;
  for (const int64_t id : world.members) {
    if (workers_.at(id).switch_to != target) return 0;
  }
  return target;
}

void MembershipSimulator::GoOver(int64_t id, int64_t generation) {
  Worker& worker = workers_.at(id);
  worker.world = 0;
  worker.switch_to = 0;
  if (worker.prepared == generation) Enter(id, generation);
}

// A world whose members the master knows does not step beside a newer one. (One
// that the master gave up may, but its commits are refused.)
void MembershipSimulator::CheckFenced(const World& world, int64_t generation) {
  for (const int64_t id : world.members) {
    if (known_.count(id) == 0) return;
  }
  EXPECT_LE(newest_level_, generation);
}

void MembershipSimulator::Step(int64_t generation) {
  if (!CanRun(generation)) return;
  const World& world = worlds_.at(generation);
  CheckFenced(world, generation);
  const int64_t target = SwitchTarget(world);
  // Who leaves puts no data into a step, and without data there is none.
  if (!world.last) {
    for (const int64_t id : world.members) ++workers_.at(id).model.step;
  }
  const int64_t first = world.members[0];
  Model settled = workers_.at(first).model;
  if (world.members.size() > 1 && !world.last) --settled.step;
  ToMaster(first, [this, first, generation, settled] {
    HandleProgress(first, generation, settled);
  });
  if (target != 0) {
    for (const int64_t id : world.members) GoOver(id, target);
    return;
  }
  At(Chance(0.05) ? Seconds(0, 20) : Seconds(0, 0.5),
     [this, generation] { Step(generation); });
}

// The connections of the world close because of `culprit`. The collective that
// runs may have completed at some members.
void MembershipSimulator::Break(int64_t generation, int64_t culprit) {
  World& world = worlds_.at(generation);
  if (world.broken) return;
  world.broken = true;
  const bool entered = world.entered.size() == world.members.size();
  const bool all_took_part = entered && Chance(0.5);
  const int64_t target = world.level ? SwitchTarget(world) : 0;
  const Model best =
      entered && !world.level ? BestModel(world, generation) : Model();
  std::vector<int64_t> completed;
  for (const int64_t id : world.members) {
    const Worker& worker = workers_.at(id);
    const bool in = worker.world == generation || worker.prepared == generation;
    if (!in) continue;
    if (all_took_part && worker.world == generation && Acts(id) &&
        Chance(0.5)) {
      completed.push_back(id);
    }
    int64_t accused = id != culprit && Chance(0.7) ? culprit : -1;
    if (Chance(id == culprit ? 0.5 : 0.05)) {
      accused = world.members[Number(0, world.members.size() - 1)];
    }
    At(Short(),
       [this, id, generation, accused] { Fail(id, generation, accused); });
  }
  for (const int64_t id : completed) {
    Worker& worker = workers_.at(id);
    ++counts_.ahead;
    if (!world.level) {
      worker.model = best;
      continue;
    }
    if (!world.last) ++worker.model.step;
    if (target != 0) GoOver(id, target);
  }
}

void MembershipSimulator::Fail(int64_t id, int64_t generation,
                               int64_t accused) {
  Worker& worker = workers_.at(id);
  if (!Acts(id)) return;
  if (worker.world == generation) {
    DropWorld(id);
    DropPrepared(id);
  } else if (worker.prepared == generation) {
    DropPrepared(id);
  } else {
    return;
  }
  ToMaster(id, [this, id, generation, accused] {
    Handle(membership_->Broken(now_, id, generation, accused, "peer closed"));
  });
}

}  // namespace elasticdl::rendezvous
