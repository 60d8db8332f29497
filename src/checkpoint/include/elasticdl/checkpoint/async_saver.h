// Saves checkpoints in the background while training goes on.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::checkpoint {

// Thread-safe. One thread saves one snapshot at a time; one more may wait. A
// newer Submit replaces the waiting one, so a slow disk costs checkpoints and
// never training time, and memory stays at two snapshots.
class AsyncSaver {
 public:
  // The path of the new version, or why there is none: an error of Save, or
  // CANCELLED (a newer snapshot replaced it, or Stop came first).
  using Done = std::function<void(const absl::StatusOr<std::string>& path)>;

  AsyncSaver(std::string dir, SaveOptions options);
  // Stop, then Join.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Takes the snapshot and returns at once. `done` (may be empty) is called
  // exactly once, on the saver's thread (after Stop: on this one), without
  // locks held; it may Submit.
  void Submit(OwnedSnapshot snapshot, Done done);

  // Waits until everything submitted before is saved and its `done` returned.
  // DEADLINE_EXCEEDED after `timeout`. Not from `done`.
  absl::Status Flush(absl::Duration timeout);

  // Idempotent, does not block: the save under way is completed, the waiting
  // snapshot and later ones are CANCELLED. Call Flush first to keep them.
  void Stop();
  // Waits for the thread to end; only after Stop.
  void Join();

 private:
  struct Job {
    OwnedSnapshot snapshot;
    Done done;
  };
  struct Cancelled {
    Done done;
    absl::Status reason;
  };

  void Run();
  void Cancel(Job& job, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const std::string dir_;
  const SaveOptions options_;

  Mutex mu_;
  CondVar changed_;
  std::optional<Job> waiting_ ABSL_GUARDED_BY(mu_);
  std::deque<Cancelled> cancelled_ ABSL_GUARDED_BY(mu_);
  // Between taking work and the return of its callbacks.
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  // Its own synchronisation; last, so that it starts when the rest is there.
  Thread thread_;
};

}  // namespace elasticdl::checkpoint
