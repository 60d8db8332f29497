// The worlds of a job: turns the membership's decisions into messages to the
// members, and records what the members report about their world.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/rendezvous/membership.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "job_output.h"
#include "worker_registry.h"
#include "world_change.h"

namespace elasticdl::master {

// What follows from a world that failed because of NCCL. kWithout: worlds are
// made without it from now on; kHopeless: the job asked for nothing else, and
// no world has made a step over it.
enum class NcclVerdict { kGoOn, kWithout, kHopeless };

// Thread-compatible. The controller decides what a new or broken world means
// for the data: it queries the membership and passes its decisions on.
class WorldKeeper {
 public:
  // `registry` and `port` must outlive this.
  // `collective`: the backend of the job's worlds (--collective).
  WorldKeeper(const rendezvous::MembershipOptions& options,
              const std::string& collective, WorkerRegistry& registry,
              WorkerPort& port)
      : options_(options),
        collective_(collective.empty() ? "auto" : collective),
        registry_(registry),
        port_(port),
        membership_(options) {}

  rendezvous::Membership& membership() { return membership_; }
  const rendezvous::Membership& membership() const { return membership_; }

  // The world that trains; 0 = none.
  int64_t generation() const { return membership_.active_generation(); }
  bool IsMember(int64_t worker_id) const;
  // Members of the last world that was level.
  size_t size() const { return size_; }
  // The members wait for data and run no steps until the master sends a
  // message.
  bool at_rest() const {
    return idle_generation_ != 0 && idle_generation_ == generation();
  }

  // ---- after a restart of the master ----
  // Worlds are numbered from here on.
  void StartAfter(int64_t generation);
  int64_t last_generation() const { return last_generation_; }
  // The last one that was level: its members that have the model.
  const v1::JournalRecord::World& last_world() const { return last_world_; }
  void set_last_world(const v1::JournalRecord::World& world) {
    last_world_ = world;
  }

  // ---- what members say ----
  void OnIdle(int64_t worker_id, int64_t generation);
  void OnLoading(absl::Time now, int64_t worker_id, const v1::Loading& loading);
  // True: the first step in this world.
  bool OnStep(int64_t generation);
  // A world failed because of NCCL; what follows is said once. While a world
  // trains over NCCL, it is the joiner that has a problem.
  NcclVerdict OnNcclFailure(int64_t generation);
  // A worker was lost, which explains failures.
  void OnLoss() {
    nccl_failures_ = 0;
    // Also of members that tell of theirs after this.
    nccl_failed_generation_ =
        std::max(nccl_failed_generation_, last_generation_);
  }

  // ---- what they are told ----
  // Offers, switches and dissolutions. False: a decision of another kind.
  bool Announce(const rendezvous::MembershipDecision& decision);
  // The part of a Prepare that the decision says.
  v1::Prepare BeginPrepare(const rendezvous::MembershipDecision& decision);
  // A world is level. `pause`: how long its members say that nobody trained.
  WorldChange Activate(const rendezvous::MembershipDecision& decision,
                       absl::Duration pause, int64_t step, int64_t lineage);
  // A member that was behind has the model now.
  void AddLevel(int64_t worker_id) { last_world_.add_members(worker_id); }
  // There is data again. Only for members at rest.
  void Wake();
  // There will be no more training data. Only for members at rest: of two
  // members that are about to run a round together, one could get the message
  // before and the other after it started the round, and the latter would wait
  // forever.
  void SendTrainingDone();

  // Why `ready` workers do not train yet, for people; `attached`: those that
  // have a stream.
  std::string Activity(size_t ready, size_t attached) const;

 private:
  void SendTo(const std::vector<int64_t>& workers, v1::MasterMessage message);
  // To each member what it needs.
  void SendOffers(const rendezvous::MembershipDecision& decision);

  const rendezvous::MembershipOptions options_;
  const std::string collective_;
  WorkerRegistry& registry_;
  WorkerPort& port_;
  rendezvous::Membership membership_;
  // What the members of the world that is being made offer.
  std::string offered_;
  // The last world that is, or was to be, connected by NCCL.
  int64_t nccl_generation_ = 0;
  // The active world, if NCCL connects it.
  int64_t active_nccl_generation_ = 0;
  // Worlds in a row that failed because of NCCL, and the last of them.
  int nccl_failures_ = 0;
  int64_t nccl_failed_generation_ = 0;
  bool without_nccl_ = false;
  // There was a step over it.
  bool nccl_worked_ = false;
  size_t size_ = 0;
  int64_t idle_generation_ = 0;
  // The newest world in which a step was reported.
  int64_t stepped_generation_ = 0;
  // The last news of the world that is being made.
  v1::Loading loading_;
  // For the journal.
  int64_t last_generation_ = 0;
  v1::JournalRecord::World last_world_;
};

}  // namespace elasticdl::master
