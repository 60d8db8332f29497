// Who of a world's members is still there, for a backend whose data goes over
// connections that are not ours.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "tcp/mesh.h"

namespace elasticdl::collective {

// Owns a connection to every other member and a thread that sleeps on them. Who
// leaves, or breaks the world, says how many calls it has completed and closes
// its connections; who dies just closes them. So a member that is still in a
// call that the other has completed may finish it, and every later one fails at
// once, whatever becomes of the data connections. Thread-safe.
class MemberWatch {
 public:
  // Something that waits and is woken, once, when the world ends.
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
  // Begins to watch, and the first call: that of making the world.
  void Start();
  // This member has all its connections; waits until all others say so, too,
  // which completes the first call. Who says so and dies does not end it: the
  // death shows in the next call. ABORTED, DEADLINE_EXCEEDED.
  absl::Status AwaitReady(Deadline& deadline);

  // Begins a call. ABORTED when the world has ended, or when a member has left
  // that would not come.
  absl::Status Enter();
  void Complete();
  // ABORTED with the reason once the world has ended.
  absl::Status Check() { return mesh_->Check(); }
  // The first reason is kept. Does not block, but for what sleepers do.
  void End(const absl::Status& why);

  // A sleeper that comes too late is not woken: it has to Check after this.
  void Add(Sleeper* sleeper);
  void Remove(Sleeper* sleeper);

 private:
  void Run();
  // Reads from a member that has something to say; false when it is gone.
  bool Hear(int rank);
  void Lost(int rank, const std::string& why);
  // A member takes part in this call but in no later one.
  void NoteLast(int rank, int64_t call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendToAll(int64_t message);
  void EndLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<TcpMesh> mesh_;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Calls completed here, and the number of the one that is running.
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
  // The last call that all members take part in, as far as is known.
  int64_t last_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
  int last_rank_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int> ready_ ABSL_GUARDED_BY(mu_);
  CondVar ready_or_ended_;
  std::set<Sleeper*> sleepers_ ABSL_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace elasticdl::collective
