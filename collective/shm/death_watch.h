// Detects at once when the process of another member ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::collective {

// A process, distinguished from a later one with the same pid.
struct ProcessId {
  int32_t pid = 0;
  // Clock ticks since boot.
  uint64_t start = 0;
};
absl::StatusOr<ProcessId> OwnProcess();

struct WatchedProcess {
  int rank = 0;
  ProcessId process;
  // fd < 0: it has none.
  LifeSign sign;
};

// Two threads wait until a process ends: the life sign shows one that it was
// killed; some milliseconds later its pidfd shows the other that it has ended
// in any way. Thread-safe.
class DeathWatch {
 public:
  using Died = std::function<void(const WatchedProcess& process)>;

  // ABORTED when one of them has ended already.
  static absl::StatusOr<std::shared_ptr<DeathWatch>> Start(
      std::vector<WatchedProcess> processes);
  // No call to a follower runs after this.
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  // From now on `died` is called, and nobody else, when a process ends: by the
  // watch's threads and perhaps by both, and here for those that have ended. It
  // must not call the watch. The result is for Unfollow.
  int64_t Follow(Died died);
  // Waits for a call that is running. Nothing if another one follows now.
  void Unfollow(int64_t number);

 private:
  DeathWatch(std::vector<WatchedProcess> processes, std::vector<Fd> pidfds,
             Fd stop);
  void WatchSigns();
  void Run();
  void OnDeath(size_t index);

  const std::vector<WatchedProcess> processes_;
  // Of the processes that have not ended, by their place among all.
  std::map<size_t, Fd> pidfds_;
  const Fd stop_;

  // Held while a follower is called.
  Mutex mu_;
  std::set<size_t> dead_ ABSL_GUARDED_BY(mu_);
  Died died_ ABSL_GUARDED_BY(mu_);
  int64_t following_ ABSL_GUARDED_BY(mu_) = 0;

  LifeWatch signs_;
  Thread thread_;
};

}  // namespace elasticdl::collective
