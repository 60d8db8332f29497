// Watches which members of a world are alive, for a backend whose data
// connections we do not control.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "tcp/mesh.h"

namespace elasticdl::collective {

// Owns a connection to every other member and a thread that waits for them. A
// member that leaves, or breaks the world, sends how many calls it has
// completed and closes its connections; one that dies just closes them. So a
// member may finish a call that the other has completed, and every later call
// fails at once, whatever happens to the data connections. Thread-safe.
class MemberWatch {
 public:
  // A waiting thread; woken once, when the world ends.
  class Sleeper {
   public:
    virtual ~Sleeper() = default;
    // By any thread, with the watch's lock held.
    virtual void Wake() = 0;
  };

  explicit MemberWatch(std::unique_ptr<TcpMesh> mesh);
  // Leaves.
  ~MemberWatch();
  MemberWatch(const MemberWatch&) = delete;
  MemberWatch& operator=(const MemberWatch&) = delete;

  // For an exchange before Start.
  TcpMesh& mesh() { return *mesh_; }
  // Starts the watch and the first call, which connects the world.
  void Start();
  // This member has all its connections; waits until all others report the
  // same, which completes the first call. If a member reports it and then dies,
  // the next call fails. ABORTED, DEADLINE_EXCEEDED.
  absl::Status AwaitReady(Deadline& deadline);

  // In the first call after AwaitReady: waits until all members are in it. They
  // come when they have finished with the world before, so this may take long.
  absl::Status AwaitAllInFirstCall(Deadline& deadline);

  // Begins a call. ABORTED if the world has ended, or if a member has left and
  // will not take part.
  absl::Status Enter();
  // All calls that were begun are complete.
  void Complete();
  // A member that has left the world, but takes part in the calls so far; -1 if
  // none has.
  int left_rank();
  // ABORTED with the reason once the world has ended.
  absl::Status Check() { return mesh_->Check(); }
  // The same, after reading what the others have sent so far. A member that
  // breaks the world says so before it breaks it, but this object's own thread
  // may not have had time to read it.
  absl::Status CheckNow();
  // Tells the others that this member takes part in no further call. Does not
  // block, and does not end the world yet.
  void Leave();
  // Ends it when all others have left too, or have died, or at the deadline.
  void EndAfterOthers(Deadline& deadline);
  // The first reason is kept. Does not block, unless waking a sleeper does.
  void End(const absl::Status& why);

  // A sleeper that is added too late is not woken: call Check after this.
  void Add(Sleeper* sleeper);
  void Remove(Sleeper* sleeper);

 private:
  void Run();
  // Waits for `timeout_ms`, -1: without limit, and reads one message of each of
  // `ranks` that has sent one. Takes those away that are gone. False: there was
  // nothing to read.
  bool Hear(std::vector<int>& ranks, int timeout_ms);
  // Reads a member's message; false if the member is gone.
  bool HearOne(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hearing_);
  bool IsGone(int rank);
  // Those who are not gone.
  std::vector<int> Others();
  void Lost(int rank, const std::string& why);
  // A member takes part in calls up to this one.
  void NoteLast(int rank, int64_t call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendToAll(int64_t message);
  // Waits until all others are in `who` or the world has ended.
  absl::Status AwaitAll(const std::set<int>& who, const char* what,
                        Deadline& deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<TcpMesh> mesh_;
  // One thread at a time reads, so that messages count in their order. Taken
  // before `mu_`.
  Mutex hearing_ ABSL_ACQUIRED_BEFORE(mu_);
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Calls completed here, and the number of the last one that was begun.
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  // The last call that all members take part in, as far as is known.
  int64_t last_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
  int last_rank_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int> ready_ ABSL_GUARDED_BY(mu_);
  std::set<int> in_first_call_ ABSL_GUARDED_BY(mu_);
  // Those who have left or died.
  std::set<int> gone_ ABSL_GUARDED_BY(mu_);
  CondVar ready_or_ended_;
  std::set<Sleeper*> sleepers_ ABSL_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace elasticdl::collective
