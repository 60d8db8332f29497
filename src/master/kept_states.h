// The states of workers on this host, in memory that outlives them
// (docs/design/0014-state-that-outlives-its-process.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/keep/kept_state.h"

namespace elasticdl::master {

// What the controller needs of them. Must not call back.
class KeptStates {
 public:
  struct Kept {
    int64_t worker_id = 0;
    // Where a worker on this host finds it.
    std::string path;
    // Of the step at which it is once its last update is finished.
    keep::Facts facts;
  };

  virtual ~KeptStates() = default;
  // The worker has its state in the memory that is `fd` in process `pid`.
  virtual void Keep(int64_t worker_id, pid_t pid, int fd) = 0;
  // Those whose memory is kept, in the order of their ids.
  virtual std::vector<int64_t> Workers() const = 0;
  // No thread of the worker runs any more.
  virtual bool HasEnded(int64_t worker_id) const = 0;
  // After its end. NOT_FOUND: it has left nothing that can be used.
  virtual absl::StatusOr<Kept> Look(int64_t worker_id) const = 0;
  // Gives the memory back. Unknown ids are ignored.
  virtual void Drop(int64_t worker_id) = 0;
};

// Keeps descriptors. Runs on the master's thread; a thread of its own gives
// memory back, which takes a tenth of a second for one GB.
class StateKeeper : public KeptStates {
 public:
  StateKeeper();
  ~StateKeeper() override;

  void Keep(int64_t worker_id, pid_t pid, int fd) override;
  std::vector<int64_t> Workers() const override;
  bool HasEnded(int64_t worker_id) const override;
  absl::StatusOr<Kept> Look(int64_t worker_id) const override;
  void Drop(int64_t worker_id) override;

 private:
  struct Entry {
    Fd memory;
    // Of its process.
    Fd pidfd;
  };
  static absl::StatusOr<Entry> Open(int64_t worker_id, pid_t pid, int fd);

  std::map<int64_t, Entry> entries_;
  Queue<std::shared_ptr<Fd>> dropped_;
  Thread closer_;
};

}  // namespace elasticdl::master
