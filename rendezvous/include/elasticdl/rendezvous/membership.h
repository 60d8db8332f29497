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
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace elasticdl::rendezvous {

struct MembershipOptions {
  // With fewer workers there is no world: the job waits.
  int64_t min_workers = 1;
  // More than so many are kept on standby. 0 = no limit.
  int64_t max_workers = 0;
  // How long a member may take for its offer, for connecting, for switching and
  // for being brought level. Who takes longer is evicted.
  absl::Duration prepare_timeout = absl::Seconds(20);
  // A member says that its world broke, but nobody is known to be dead: how
  // long to wait for that news before the same members form a new world.
  absl::Duration broken_grace = absl::Milliseconds(500);
  // A world of the same members that breaks so often in a row without a step
  // between evicts the member that was accused most.
  int max_broken = 3;
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
    // There is no world and there cannot be one now; `reason` says why.
    kWaiting,
  };
  Kind kind = Kind::kPrepare;
  int64_t generation = 0;
  bool urgent = false;
  // No member has a trained model: they start from a checkpoint or from
  // scratch. With kPrepare.
  bool cold = false;
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
  // It wants to go in an orderly way.
  Decisions Leave(absl::Time now, int64_t worker_id);
  // It is dead, or its stream is. Unknown ids are ignored.
  Decisions Lost(absl::Time now, int64_t worker_id, const std::string& reason);
  Decisions Offered(absl::Time now, int64_t worker_id, int64_t generation,
                    const std::string& offer);
  Decisions Connected(absl::Time now, int64_t worker_id, int64_t generation);
  // The world (or the try to make it) failed at this member. `accused`: the
  // worker it blames, or -1.
  Decisions Broken(absl::Time now, int64_t worker_id, int64_t generation,
                   int64_t accused, const std::string& reason);
  // The members of the world have the same model (one member says so for all).
  Decisions Level(absl::Time now, int64_t worker_id, int64_t generation);
  // A step was committed in this world: it works.
  void Stepped(int64_t generation);
  Decisions SetLimits(absl::Time now, int64_t min_workers,
                      int64_t max_workers);
  Decisions OnTimer(absl::Time now);
  absl::Time NextTimer() const;

  // ---- state ----
  // The newest world that is level; 0 = none so far, or it is broken.
  int64_t active_generation() const;
  // Of the active world, by rank.
  std::vector<WorldMember> active_members() const;
  // FAILED_PRECONDITION unless the worker is a member of that active world.
  absl::Status CheckActive(int64_t worker_id, int64_t generation) const;
  // At least one worker that is here has the trained model.
  bool HasLevelMember() const;
  bool IsLevel(int64_t worker_id) const;
  bool Knows(int64_t worker_id) const;
  size_t num_workers() const;

 private:
  // (the implementation's)
};

}  // namespace elasticdl::rendezvous
