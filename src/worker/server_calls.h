// Calls to parameter servers on a separate thread, overlapped with the
// computation on the training thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::worker {

// One call at a time, in the order in which they were begun: whatever the calls
// use needs no lock of its own. For one calling thread.
class ServerCalls {
 public:
  using Call = std::function<absl::Status()>;
  // A call that was begun.
  struct Ticket {
    bool done = false;
    absl::Status status;
  };

  // Does not wait. The thread starts with the first call.
  std::shared_ptr<Ticket> Begin(Call call);
  // The result of the call. A call must be able to end by itself when the
  // worker is to stop (ps::Client::Cancel).
  absl::Status Wait(const std::shared_ptr<Ticket>& ticket);
  // Both; on the caller's thread when nothing is under way.
  absl::Status Run(const Call& call);
  // Waits until nothing is under way.
  void Drain();

  ServerCalls() = default;
  ~ServerCalls();

 private:
  struct Job {
    Call call;
    // Shared with whoever waits for it.
    std::shared_ptr<Ticket> ticket;
  };
  void Loop();
  // Nothing: there will be none.
  std::optional<Job> Next();

  Mutex mu_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Of the caller alone.
  std::unique_ptr<Thread> thread_;
};

}  // namespace elasticdl::worker
