// Saves checkpoints in the background while training continues.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/checkpoint/live_arrays.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::checkpoint {

// Saves snapshots in the background. Thread-safe.
class Saver {
 public:
  // Gets the path of the new version, or why there is none: an error of Save,
  // or CANCELLED (a newer snapshot replaced it, or Stop was called first).
  using Done = std::function<void(const absl::StatusOr<std::string>& path)>;

  // Which snapshots should not be copied first, but be read while training
  // changes them (Snapshot::live, with a late ledger).
  struct LiveRule {
    int64_t least_bytes = std::numeric_limits<int64_t>::max();
    LiveOptions options;
  };

  virtual ~Saver() = default;
  virtual LiveRule live_rule() const = 0;
  // Takes the snapshot and returns at once. `done` (may be empty) is called
  // exactly once, without any lock held; it may call Submit.
  virtual void Submit(OwnedSnapshot snapshot, Done done) = 0;
  // Waits until everything submitted so far is saved and its `done` has
  // returned. DEADLINE_EXCEEDED after `timeout`. Must not be called from
  // `done`.
  virtual absl::Status Flush(absl::Duration timeout) = 0;
};

// One thread saves one snapshot at a time; one more may wait. A newer Submit
// replaces the waiting one, so a slow disk costs checkpoints but never training
// time, and there are never more than two snapshots in memory. A live one
// should be submitted only when nothing is being saved, or when nothing changes
// any more.
class AsyncSaver : public Saver {
 public:
  AsyncSaver(std::string dir, SaveOptions options);
  // Stop, then Join.
  ~AsyncSaver() override;
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  LiveRule live_rule() const override;
  // `done` is called on the saver's thread, or after Stop on the calling
  // thread.
  void Submit(OwnedSnapshot snapshot, Done done) override;
  absl::Status Flush(absl::Duration timeout) override;

  // Idempotent, does not block. The current save is completed; the waiting
  // snapshot and later ones are CANCELLED. Call Flush first to save them.
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
  // True from taking work until its callbacks have returned.
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  // Internally synchronized. Last, so that it starts when the rest is
  // initialized.
  Thread thread_;
};

}  // namespace elasticdl::checkpoint
