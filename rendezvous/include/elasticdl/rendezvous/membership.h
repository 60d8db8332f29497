// Decides which workers train together: forms worlds from the workers that are
// ready and forms new ones when workers join, leave or are lost. Pure: takes
// events and the time, returns decisions with their reasons.
//
//   WAITING ──enough workers──► FORMING ──Level──► ACTIVE
//
//   ACTIVE ──joiners, leavers──► PREPARING ──kSwitch──► SWITCHING
//      ▲                             │                      │
//      └──────────Abandon────────────┴────────Level─────────┘
//
//   A member is lost or the world broke: ──Drop──► FORMING, or WAITING when too
//   few workers are left.
//
// docs/design/0003-elastic-allreduce.md has the protocol and the complete table
// of transitions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace elasticdl::rendezvous {

struct MembershipOptions {
  // With fewer workers no world is formed; the job waits.
  int64_t min_workers = 1;
  // Further workers are kept on standby. 0 = no limit.
  int64_t max_workers = 0;
  // How long a member may take to make an offer, and to connect. A separate
  // thread does both, so a long step is no excuse. Slower members are evicted.
  absl::Duration prepare_timeout = absl::Seconds(20);
  absl::Duration connect_timeout = absl::Seconds(20);
  // How long a member may take to enter the new world (Loading()) once all are
  // connected. It finishes its current step first, which may be a long one; a
  // hanging step is detected by the worker's own watchdog.
  absl::Duration enter_timeout = absl::Minutes(10);
  // How long a member that has entered may go without moving any bytes of its
  // state. Only silence is limited: a large state on a slow disk may take
  // hours. Members that are silent for longer are evicted.
  absl::Duration load_timeout = absl::Minutes(2);
  // When a member reports a broken world but no worker is known to be lost: how
  // long to wait for news of a loss before the same members form a new world.
  absl::Duration broken_grace = absl::Milliseconds(500);
  // When worlds break this often in a row without a step in between, the member
  // that was blamed most often is evicted. When this many background
  // preparations fail because of the same worker, that worker is evicted.
  int max_broken = 3;
  // The model can be saved. When every worker that has it is leaving, the
  // leavers form a last world, save the model and are released only then.
  // Otherwise they are released at once.
  bool save_last = false;
  // How long to wait, from Level() of the last world, for Saved(). After that
  // the leavers are released without a save.
  absl::Duration save_timeout = absl::Minutes(10);
};

struct WorldMember {
  int64_t worker_id = 0;
  std::string host;
};

// A member's progress in synchronizing a new world.
enum class LoadStage {
  // It has entered the new world and is loading its own state (a checkpoint).
  // Sent when it enters, and again when bytes have moved.
  kLoading,
  // Its own state is ready; it waits for the other members.
  kLoaded,
  // All members are ready; bytes of the donor's state have moved.
  kMoving,
};

struct MembershipDecision {
  enum class Kind {
    // To `to` (= all of `members`): make an offer for this world. `urgent`: the
    // previous world is dead, drop it now. Otherwise keep training meanwhile.
    kPrepare,
    // To `to`: connect, with these offers of all members, by rank.
    kOffers,
    // To `to` (the members of the old and the new world): all are connected,
    // switch. Not sent for an urgent world, which each member enters as soon as
    // it has connected.
    kSwitch,
    // The world is level and trains (for logging; nothing to send).
    kActive,
    // `worker_id` is late or stuck. Treat it as lost; Lost() need not be
    // called.
    kEvict,
    // `worker_id` asked to leave and is no longer needed.
    kRelease,
    // To `to`: drop all worlds up to `generation` and wait for the next
    // kPrepare. Sent only to workers that get no kPrepare, which would tell
    // them the same.
    kDissolve,
    // There is no world and none can be formed now; `reason` says why. Repeated
    // only when the reason changes.
    kWaiting,
  };
  Kind kind = Kind::kPrepare;
  int64_t generation = 0;
  bool urgent = false;
  // kPrepare: no member has the trained model; they start from a checkpoint or
  // from scratch.
  bool cold = false;
  // kPrepare: all members are leaving; they save the model.
  bool last = false;
  // kPrepare, not 0: the members go on without the others of this world, which
  // all of them are in. They make no offers, connect to nobody and enter at
  // once.
  int64_t shrinks = 0;
  std::vector<WorldMember> members;
  std::vector<std::string> offers;
  std::vector<int64_t> to;
  int64_t worker_id = -1;
  // kActive: for how long nobody trained (zero after a switch).
  absl::Duration pause;
  std::string reason;
};

// Thread-compatible.
class Membership {
 public:
  using Decisions = std::vector<MembershipDecision>;
  // `next_generation`: the generation of the first world.
  explicit Membership(MembershipOptions options, int64_t next_generation = 1);

  // ---- events ----
  // The worker has built its model and can take part. A worker id is never
  // reused for another process.
  Decisions Ready(absl::Time now, int64_t worker_id, const std::string& host);
  // After a restart of the master: the members of its last world, by rank. They
  // have the trained model and form the first world together. Must be called
  // before all other events.
  Decisions Resume(absl::Time now, const std::vector<WorldMember>& members,
                   const std::string& reason);
  // The worker wants to leave.
  Decisions Leave(absl::Time now, int64_t worker_id);
  // All workers must leave.
  Decisions LeaveAll(absl::Time now);
  // The model of a last world is saved, or cannot be saved. Reported by the
  // member that reported Level().
  Decisions Saved(absl::Time now, int64_t worker_id, int64_t generation);
  // The worker is lost. Unknown ids are ignored.
  Decisions Lost(absl::Time now, int64_t worker_id, const std::string& reason);
  // MembershipOptions::connect_timeout of worlds that connect from now on.
  void set_connect_timeout(absl::Duration timeout) {
    options_.connect_timeout = timeout;
  }
  // What breaks worlds is no worker's fault.
  void ForgiveBreaks() {
    num_broken_ = 0;
    accusations_.clear();
  }
  // The members have been told of this world only now: their timeouts start
  // again.
  void Announced(absl::Time now, int64_t generation);
  Decisions Offered(absl::Time now, int64_t worker_id, int64_t generation,
                    const std::string& offer);
  Decisions Connected(absl::Time now, int64_t worker_id, int64_t generation);
  // The world, active or being formed, failed at this member. `accused`: the
  // worker that it blames, or -1.
  Decisions Broken(absl::Time now, int64_t worker_id, int64_t generation,
                   int64_t accused, const std::string& reason);
  // A member of the world being formed makes progress with its state.
  void Loading(absl::Time now, int64_t worker_id, int64_t generation,
               LoadStage stage);
  // All members of the world hold the same model, except those that are
  // `behind`: they get it while the others train. One member, which has it,
  // reports it for all, once it knows that each of them has adopted the state.
  // `can_shrink`: if members are lost, the others need not connect again.
  Decisions Level(absl::Time now, int64_t worker_id, int64_t generation,
                  const std::vector<int64_t>& behind = {},
                  bool can_shrink = false);
  // This member of the active world was behind and has the model now.
  Decisions CaughtUp(absl::Time now, int64_t worker_id, int64_t generation);
  // A step was committed in this world, so the world works.
  void Stepped(int64_t generation);
  Decisions SetLimits(absl::Time now, int64_t min_workers, int64_t max_workers);
  Decisions OnTimer(absl::Time now);
  absl::Time NextTimer() const;

  // ---- state ----
  // The newest level world; 0 = none. During a switch it is the old world until
  // the new one is level. During broken_grace it is still the world that was
  // reported broken.
  int64_t active_generation() const;
  // The members of the active world, by rank.
  std::vector<WorldMember> active_members() const;
  // The worker with this rank in the world of that generation, if it is the
  // active one or the one being formed; otherwise -1.
  int64_t MemberAt(int64_t generation, int64_t rank) const;
  // The worker is a member of the active world.
  bool IsActive(int64_t worker_id) const {
    return active_ && active_->Has(worker_id);
  }
  // FAILED_PRECONDITION unless the worker is a member of that active world.
  absl::Status CheckActive(int64_t worker_id, int64_t generation) const;
  // The active world is a last world.
  bool InLastWorld() const { return active_ && active_->last; }
  // The world of this generation is a last world, active or being formed.
  bool IsLastWorld(int64_t generation) const;
  // A world is being formed.
  bool IsForming() const { return try_.has_value(); }
  // At least one worker has the trained model.
  bool HasLevelMember() const;
  size_t num_level() const { return num_level_; }
  bool IsLevel(int64_t worker_id) const;
  bool Knows(int64_t worker_id) const;
  size_t num_workers() const;

 private:
  struct Worker {
    std::string host;
    // The order in which workers got ready. Worlds are filled in this order, so
    // survivors come first and keep their relative ranks.
    uint64_t order = 0;
    bool level = false;
    bool leaving = false;
    // Number of background preparations that failed because of this worker
    // since the last Level().
    int failed = 0;
  };
  struct World {
    bool Has(int64_t worker_id) const { return ranks.count(worker_id) > 0; }
    int64_t generation = 0;
    bool last = false;
    bool can_shrink = false;
    std::vector<WorldMember> members;
    std::unordered_map<int64_t, size_t> ranks;
  };
  // The phases of forming a world.
  enum class Phase { kOffering, kConnecting, kLeveling };
  // A member's progress in kLeveling.
  struct Load {
    bool entered = false;
    bool loaded = false;
    // When it last reported progress.
    absl::Time heard = absl::InfinitePast();
  };
  // The world that is being formed.
  struct Try {
    World world;
    bool urgent = false;
    Phase phase = Phase::kOffering;
    std::vector<std::string> offers;
    // By rank: finished the current phase.
    std::vector<bool> done;
    size_t num_done = 0;
    absl::Time deadline;
    // By rank. Members may enter an urgent world before all are connected.
    std::vector<Load> loads;
    // What the deadlines of all loads follow from: how many have not entered,
    // the ranks that are loading with when they last reported, and the last
    // report of all.
    size_t num_outside = 0;
    std::set<std::pair<absl::Time, size_t>> loading;
    absl::Time moved = absl::InfinitePast();
    // Members that had the model before the report that the world is level.
    std::set<int64_t> caught_up;
    std::string cause;
  };
  // Members have reported a broken world.
  struct Break {
    absl::Time since;
    absl::Time deadline;
    int64_t first_reporter = -1;
    std::string cause;
    // The members that reported the active world, and the one being formed.
    std::set<int64_t> of_active;
    std::set<int64_t> of_try;
  };

  // membership.cc: handles events.
  Decisions Take();
  bool Expects(int64_t worker_id, int64_t generation, Phase phase) const;
  bool MayLevel(int64_t worker_id, int64_t generation) const;
  // This member has finished the phase. Returns true if it was the last one.
  bool Done(int64_t worker_id);
  void NextPhase(absl::Time now, Phase phase);
  void Activate(absl::Time now);
  void SetLevel(const std::vector<int64_t>& behind);
  void ReportBreak(absl::Time now, bool of_try, int64_t worker_id,
                   int64_t accused, const std::string& reason);
  void BackgroundBroken(absl::Time now, int64_t worker_id, int64_t accused);
  void CountBreak(absl::Time now, const std::string& cause,
                  int64_t first_reporter);
  int64_t ChooseVictim(int64_t first_reporter) const;

  // membership_late.cc: handles timeouts.
  void HandleLate(absl::Time now);
  // When the next timeout of a member or of the whole world is due.
  absl::Time TryDeadline() const;
  absl::Time MemberDeadline(const Load& load) const;
  void LevelLate(absl::Time now);
  void UrgentLate(absl::Time now, const std::vector<int64_t>& late);
  void BackgroundLate(absl::Time now, const std::vector<int64_t>& late);

  // membership_plan.cc: chooses the members of the next world.

  // Called at the end of every event: starts the next world if one is due and
  // none is being formed.
  void Settle(absl::Time now);
  void PlanChange(absl::Time now);
  void FormWorld(absl::Time now);
  void ReleaseLeavers(bool keep_model);
  // All workers that have the model are leaving, and it can be saved.
  bool MustSave() const;
  bool NobodyStays() const;
  std::vector<int64_t> ChooseMembers() const;
  std::vector<int64_t> LevelWorkers() const;
  // A `last` world must also be urgent.
  void StartTry(absl::Time now, const std::vector<int64_t>& ids, bool urgent,
                const std::string& cause, bool last = false);
  // Gives up the active world and the one being formed.
  void Drop(absl::Time now, const std::string& cause);
  // The same after the loss of a member. The others are in the active world,
  // and may go on in it.
  void DropLost(absl::Time now, const std::string& cause);
  // The world that these can go on in without the others; 0 = none.
  int64_t Shrinks(const std::vector<int64_t>& ids) const;
  // Gives up a background preparation; the active world keeps training.
  void Abandon(absl::Time now, bool retry_at_once);
  void DissolveDropped(const World* next);
  void Wait();
  std::string FormCause() const;

  // Workers.
  bool InBackground() const;
  bool InUrgentPart() const;
  bool IsOnlyLevel(int64_t worker_id) const;
  void Erase(int64_t worker_id);
  void Evict(int64_t worker_id, const std::string& reason);
  void Release(int64_t worker_id, const std::string& reason);
  MembershipDecision& Emit(MembershipDecision::Kind kind, int64_t generation,
                           const std::string& reason);

  MembershipOptions options_;
  int64_t next_generation_;
  uint64_t next_order_ = 0;

  std::unordered_map<int64_t, Worker> workers_;
  std::map<uint64_t, int64_t> by_order_;
  size_t num_level_ = 0;
  size_t num_leaving_ = 0;

  std::optional<World> active_;
  // The world that lost members, until the next one is formed in the same
  // event.
  std::optional<World> shrinking_;
  std::optional<Try> try_;
  std::optional<Break> break_;
  // Members of worlds that Drop() gave up, until they have been told.
  std::vector<int64_t> dropped_;

  // Since when nobody trains, and why.
  std::optional<absl::Time> pause_since_;
  std::string cause_;
  size_t num_more_causes_ = 0;
  bool was_active_ = false;
  std::string waiting_reason_;

  // Broken worlds in a row without a step, and how often each worker was
  // blamed.
  int num_broken_ = 0;
  std::map<int64_t, int> accusations_;
  // Background preparations abandoned in a row, and when the next may start.
  int num_abandoned_ = 0;
  absl::Time retry_at_ = absl::InfinitePast();

  // The model of the last world is saved, or the save was given up.
  bool saved_ = false;
  absl::Time save_by_ = absl::InfiniteFuture();

  // The decisions of the current event.
  Decisions out_;
};

}  // namespace elasticdl::rendezvous
