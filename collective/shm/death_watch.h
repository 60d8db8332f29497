// Detects at once when the process of another member ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
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
// in any way. Thread-compatible.
class DeathWatch {
 public:
  // `died` is called with the rank, by one of the watch's threads and perhaps
  // by both, when a process ends. ABORTED when one of them has ended already.
  static absl::StatusOr<std::unique_ptr<DeathWatch>> Start(
      const std::vector<WatchedProcess>& processes,
      std::function<void(int rank)> died);
  // No call to `died` runs after this.
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  struct Watched {
    int rank;
    Fd pidfd;
  };
  DeathWatch(std::vector<Watched> watched, Fd stop,
             std::function<void(int rank)> died);
  void WatchSigns(const std::vector<WatchedProcess>& processes);
  void Run();

  std::vector<Watched> watched_;
  const Fd stop_;
  const std::function<void(int rank)> died_;
  LifeWatch signs_;
  Thread thread_;
};

}  // namespace elasticdl::collective
