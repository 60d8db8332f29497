// A job in simulated time: workers that follow the worker's side of
// docs/design/0003-elastic-allreduce.md, die, hang, leave and come back; a
// network that keeps the order per worker only; and a Membership.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "elasticdl/rendezvous/membership.h"

namespace elasticdl::rendezvous {

// Thread-compatible. Reports violations with gtest's EXPECT.
class MembershipSimulator {
 public:
  explicit MembershipSimulator(uint64_t seed);

  // Faults for a while, then none until all is well.
  void Run();

  // What happened, so that a test can see that it tests something.
  struct Counts {
    int64_t events = 0;
    int64_t deaths = 0;
    int64_t active = 0;
    int64_t switches = 0;
    int64_t cold = 0;
    int64_t evicted = 0;
    int64_t released = 0;
    int64_t dissolved = 0;
    int64_t commits = 0;
    int64_t ahead = 0;
    int64_t saved = 0;
    int64_t slow_parts = 0;
    int64_t silent = 0;
    int64_t shrunk = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  using Kind = MembershipDecision::Kind;
  // The model: its descent (the cold world it came from) and its step.
  struct Model {
    int64_t lineage = 0;
    int64_t step = 0;
    bool operator<(const Model& other) const {
      return std::tie(lineage, step) < std::tie(other.lineage, other.step);
    }
  };
  struct Worker {
    bool alive = true;
    bool hung = false;
    // Each world with others breaks because of it.
    bool bad = false;
    bool cut = false;
    Model model;
    // The world it is in, and the one it prepares; 0 = none.
    int64_t world = 0;
    int64_t prepared = 0;
    int64_t switch_to = 0;
    // The newest world that it was in.
    int64_t entered = 0;
    absl::Time last_to_master;
    absl::Time last_to_worker;
  };
  // What the members of a world share: their connections.
  struct World {
    std::vector<int64_t> members;
    bool urgent = false;
    bool cold = false;
    bool last = false;
    bool broken = false;
    bool level = false;
    std::set<int64_t> connecting;
    std::set<int64_t> connected;
    std::set<int64_t> entered;
  };
  struct Event {
    absl::Time time;
    uint64_t number = 0;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(other.time, other.number) < std::tie(time, number);
    }
  };

  // Chance and time.
  bool Chance(double probability);
  int64_t Number(int64_t low, int64_t high);
  absl::Duration Short();
  absl::Duration Seconds(double low, double high);
  void At(absl::Duration delay, std::function<void()> run);
  // False: nothing is left to happen.
  bool RunNext();

  // Faults and other surprises.
  void Surprise();
  void AddWorker();
  void AskToLeave(int64_t id);
  void AskAllToLeave();
  int64_t AnyWorker();
  void Die(int64_t id, bool master_sees);
  void Exit(int64_t id);
  void Hang(int64_t id);
  void Cut(int64_t id);
  void EndFaults();

  // The master.
  void ToMaster(int64_t id, std::function<void()> run);
  void Handle(const Membership::Decisions& decisions);
  void Check(const MembershipDecision& decision);
  void CheckPrepare(const MembershipDecision& decision);
  void CheckNotStuck();
  void Deliver(const MembershipDecision& decision);
  void HandleLevel(int64_t id, int64_t generation, Model model);
  void HandleProgress(int64_t id, int64_t generation, Model model);
  void HandleSaved(int64_t id, int64_t generation, Model model);
  bool AllIsWell();
  size_t NumStaying() const;

  // The worker.
  bool Acts(int64_t id) const;
  void Receive(int64_t id, const MembershipDecision& message);
  void DropWorld(int64_t id);
  void DropPrepared(int64_t id);
  void Connect(int64_t id, int64_t generation);
  void ConnectDone(int64_t id, int64_t generation);
  void EnterShrunk(int64_t id, int64_t generation);
  void Enter(int64_t id, int64_t generation);
  void TellLoading(int64_t id, int64_t generation, LoadStage stage);
  void LoadOn(int64_t id, int64_t generation, int64_t parts);
  void FinishLevel(int64_t generation);
  void Save(int64_t id, int64_t generation);
  void Step(int64_t generation);
  void CheckFenced(const World& world, int64_t generation);
  void GoOver(int64_t id, int64_t generation);
  // All members of it can do a collective now. Otherwise it breaks, or will.
  bool CanRun(int64_t generation);
  int64_t SwitchTarget(const World& world);
  void Break(int64_t generation, int64_t culprit);
  void Fail(int64_t id, int64_t generation, int64_t accused);
  Model BestModel(const World& world, int64_t generation);

  const uint64_t seed_;
  std::mt19937_64 random_;
  MembershipOptions options_;
  std::unique_ptr<Membership> membership_;
  absl::Time now_ = absl::FromUnixSeconds(0);
  std::priority_queue<Event> events_;
  uint64_t next_number_ = 0;
  bool faults_ = true;
  // From then on the last faults are forgotten.
  absl::Time peace_ = absl::InfiniteFuture();
  double seconds_to_surprise_ = 1;
  Counts counts_;

  std::map<int64_t, Worker> workers_;
  std::map<int64_t, World> worlds_;
  int64_t newest_level_ = 0;
  int64_t next_id_ = 1;

  // What the master may think, from its events and decisions alone.
  std::set<int64_t> known_;
  std::set<int64_t> leaving_;
  std::set<int64_t> level_;
  std::vector<int64_t> last_active_;
  int64_t newest_ = 0;
  int64_t newest_committed_ = 0;
  Model committed_;
  // The active world is a last one and its model is saved.
  bool saved_ = false;
};

}  // namespace elasticdl::rendezvous
