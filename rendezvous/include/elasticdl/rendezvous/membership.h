// Who trains together: forms worlds of the workers that are there and re-forms
// them when workers come, go or die. Pure: events and the time go in, decisions
// with their reasons come out. docs/design/0003-elastic-allreduce.md has the
// protocol and the state diagram.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace elasticdl::rendezvous {

struct MembershipOptions {
  // With fewer workers there is no world: the job waits.
  int64_t min_workers = 1;
  // More than so many are kept on standby. 0 = no limit.
  int64_t max_workers = 0;
  // How long a member may take for its offer, for connecting and, in an urgent
  // world, for being brought level. Who takes longer is evicted.
  absl::Duration prepare_timeout = absl::Seconds(20);
  // From kSwitch to Level(). The old world ends its step first, and that may
  // be a long one; a hanging step is found elsewhere.
  absl::Duration switch_timeout = absl::Minutes(10);
  // A member says that its world broke, but nobody is known to be dead: how
  // long to wait for that news before the same members form a new world.
  absl::Duration broken_grace = absl::Milliseconds(500);
  // A world of the same members that breaks so often in a row without a step
  // between evicts the member that was accused most. A background preparation
  // that fails so often because of the same worker evicts that one.
  int max_broken = 3;
  // The model can be saved: when nobody that has it stays, those who leave form
  // a last world, save it and go then. Otherwise they go at once.
  bool save_last = false;
  // From Level() of the last world to Saved(). Who waits longer goes without.
  absl::Duration save_timeout = absl::Minutes(10);
};

struct WorldMember {
  int64_t worker_id = 0;
  std::string host;
};

struct MembershipDecision {
  enum class Kind {
    // To `to` (= all of world.members): make an offer for `world`. `urgent`:
    // the world before is dead, drop it now. Otherwise train on meanwhile.
    kPrepare,
    // To `to`: all members' offers, by rank: connect.
    kOffers,
    // To `to` (the members of the old world and of the new): all are connected;
    // go over. Only for a world that is not urgent; an urgent one is entered
    // as soon as a member has connected.
    kSwitch,
    // The world is level and trains (for the record; nothing to send).
    kActive,
    // `worker_id` must go: it did not follow. Treat it as lost; no Lost() for
    // it is needed.
    kEvict,
    // `worker_id` asked to leave and is not needed any more.
    kRelease,
    // To `to`: drop all worlds up to `generation` and wait for the next
    // kPrepare. Only to those whom no kPrepare tells that their world is over.
    kDissolve,
    // There is no world and there cannot be one now; `reason` says why. Comes
    // again only with another reason.
    kWaiting,
  };
  Kind kind = Kind::kPrepare;
  int64_t generation = 0;
  bool urgent = false;
  // No member has a trained model: they start from a checkpoint or from
  // scratch. With kPrepare.
  bool cold = false;
  // All members leave: they save the model. With kPrepare.
  bool last = false;
  std::vector<WorldMember> members;
  std::vector<std::string> offers;
  std::vector<int64_t> to;
  int64_t worker_id = -1;
  // kActive: how long nobody trained (zero for a switch).
  absl::Duration pause;
  std::string reason;
};

// Thread-compatible.
class Membership {
 public:
  using Decisions = std::vector<MembershipDecision>;
  // `next_generation`: that of the first world.
  explicit Membership(MembershipOptions options, int64_t next_generation = 1);

  // ---- events ----
  // The worker has loaded its model and can take part. A worker id is never
  // used again for another process.
  Decisions Ready(absl::Time now, int64_t worker_id, const std::string& host);
  // The members of the last world of a master before this one, by rank: they
  // have the trained model and form the first world together. To be called
  // before all others.
  Decisions Resume(absl::Time now, const std::vector<WorldMember>& members,
                   const std::string& reason);
  // It wants to go in an orderly way.
  Decisions Leave(absl::Time now, int64_t worker_id);
  // All that are here shall go.
  Decisions LeaveAll(absl::Time now);
  // The model of a last world is saved, or cannot be: the member that said
  // Level() says so.
  Decisions Saved(absl::Time now, int64_t worker_id, int64_t generation);
  // It is dead, or its stream is. Unknown ids are ignored.
  Decisions Lost(absl::Time now, int64_t worker_id, const std::string& reason);
  Decisions Offered(absl::Time now, int64_t worker_id, int64_t generation,
                    const std::string& offer);
  Decisions Connected(absl::Time now, int64_t worker_id, int64_t generation);
  // The world (or the try to make it) failed at this member. `accused`: the
  // worker it blames, or -1.
  Decisions Broken(absl::Time now, int64_t worker_id, int64_t generation,
                   int64_t accused, const std::string& reason);
  // The members of the world have the same model: one member says so for all,
  // when it knows that each has taken it over.
  Decisions Level(absl::Time now, int64_t worker_id, int64_t generation);
  // A step was committed in this world: it works.
  void Stepped(int64_t generation);
  Decisions SetLimits(absl::Time now, int64_t min_workers, int64_t max_workers);
  Decisions OnTimer(absl::Time now);
  absl::Time NextTimer() const;

  // ---- state ----
  // The newest world that is level; 0 = none so far, or it is given up. Until a
  // switch is level that is the old world. While broken_grace runs it still is
  // the world that was reported broken.
  int64_t active_generation() const;
  // Of the active world, by rank.
  std::vector<WorldMember> active_members() const;
  // Who has this rank in the world of that generation, the active one or the
  // one being made; -1 = nobody, or another world.
  int64_t MemberAt(int64_t generation, int64_t rank) const;
  // FAILED_PRECONDITION unless the worker is a member of that active world.
  absl::Status CheckActive(int64_t worker_id, int64_t generation) const;
  // The active world is a last one.
  bool InLastWorld() const { return active_ && active_->last; }
  // At least one worker that is here has the trained model.
  bool HasLevelMember() const;
  bool IsLevel(int64_t worker_id) const;
  bool Knows(int64_t worker_id) const;
  size_t num_workers() const;

 private:
  struct Worker {
    std::string host;
    // In which they got ready. A world takes the first that stay, so that its
    // survivors are before all others and keep their order.
    uint64_t order = 0;
    bool level = false;
    bool leaving = false;
    // Background preparations that failed because of it since the last Level().
    int failed = 0;
  };
  struct World {
    bool Has(int64_t worker_id) const { return ranks.count(worker_id) > 0; }
    int64_t generation = 0;
    bool last = false;
    std::vector<WorldMember> members;
    std::unordered_map<int64_t, size_t> ranks;
  };
  // A world that is being made.
  enum class Phase { kOffering, kConnecting, kLeveling };
  struct Try {
    World world;
    bool urgent = false;
    Phase phase = Phase::kOffering;
    std::vector<std::string> offers;
    // By rank, for the running phase.
    std::vector<bool> done;
    size_t num_done = 0;
    absl::Time deadline;
    std::string cause;
  };
  // Members said that their world broke.
  struct Break {
    absl::Time since;
    absl::Time deadline;
    int64_t first_reporter = -1;
    std::string cause;
    // Those who said it of the active world, and of the one being made.
    std::set<int64_t> of_active;
    std::set<int64_t> of_try;
  };

  // membership.cc: events.
  Decisions Take();
  bool Expects(int64_t worker_id, int64_t generation, Phase phase) const;
  // The rank's part of the phase is done. True: it was the last.
  bool Done(int64_t worker_id);
  void NextPhase(absl::Time now, Phase phase);
  void Activate(absl::Time now);
  void ReportBreak(absl::Time now, bool of_try, int64_t worker_id,
                   int64_t accused, const std::string& reason);
  void BackgroundBroken(absl::Time now, int64_t worker_id, int64_t accused);
  void CountBreak(absl::Time now, const std::string& cause,
                  int64_t first_reporter);
  int64_t ChooseVictim(int64_t first_reporter) const;
  void HandleLate(absl::Time now);
  void UrgentLate(absl::Time now, const std::vector<int64_t>& late);
  void BackgroundLate(absl::Time now, const std::vector<int64_t>& late);

  // membership_plan.cc: who is in the next world.
  // Starts what is due when nothing is under way. Ends every event.
  void Settle(absl::Time now);
  void PlanChange(absl::Time now);
  void FormWorld(absl::Time now);
  void ReleaseLeavers(bool keep_model);
  // The model would go with those who leave, and it can be saved.
  bool MustSave() const;
  bool NobodyStays() const;
  std::vector<int64_t> ChooseMembers() const;
  std::vector<int64_t> LevelWorkers() const;
  // A `last` world is urgent, too.
  void StartTry(absl::Time now, const std::vector<int64_t>& ids, bool urgent,
                const std::string& cause, bool last = false);
  // Gives up the active world and the one being made.
  void Drop(absl::Time now, const std::string& cause);
  // Gives up a background preparation; the active world trains on.
  void Abandon(absl::Time now, bool retry_at_once);
  void DissolveDropped(const World* next);
  void Wait();
  std::string FormCause() const;
  void RemoveLevelOfOthers();

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
  std::optional<Try> try_;
  std::optional<Break> break_;
  // Members of what Drop() gave up, until they are told.
  std::vector<int64_t> dropped_;

  // Since when nobody trains, and why.
  std::optional<absl::Time> pause_since_;
  std::string cause_;
  size_t num_more_causes_ = 0;
  bool was_active_ = false;
  std::string waiting_reason_;

  // Breaks in a row without a step, and whom they blame.
  int num_broken_ = 0;
  std::map<int64_t, int> accusations_;
  // Background preparations given up in a row, and when the next may start.
  int num_abandoned_ = 0;
  absl::Time retry_at_ = absl::InfinitePast();

  // The model of the last world is saved, or was given up.
  bool saved_ = false;
  absl::Time save_by_ = absl::InfiniteFuture();

  // Of the event that is being handled.
  Decisions out_;
};

}  // namespace elasticdl::rendezvous
