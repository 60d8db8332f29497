// Finds the checkpoint for a rollback: the newest one of the model's history
// that is complete. Its tensors are not read here: the worker that restores
// them finds damage, and then an older one is looked for. A disk may take its
// time, so this runs on its own thread: the controller sends a CheckpointQuery
// and gets a CheckpointAnswer later.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint_history.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/v1/ledger.pb.h"

namespace elasticdl::master {

// The job's checkpoints on the disk. Slow.
struct CheckpointStore {
  // The versions in the job's checkpoint directory. NOT_FOUND: there is no such
  // directory.
  std::function<absl::StatusOr<std::vector<checkpoint::Version>>()> list;
  // The ledger of a version, verified. DATA_LOSS and NOT_FOUND concern the
  // version, other errors the disk.
  std::function<absl::StatusOr<v1::Ledger>(const std::string& path)>
      load_ledger;
  // Whether a version is whole, its tensors included. DATA_LOSS: it is not, or
  // has no checksums. An error of `progress` ends it. Null: nobody can tell.
  std::function<absl::Status(const std::string& path,
                             const checkpoint::LoadProgress& progress)>
      verify;
  // What else a job can begin with: the newest version below `below` where its
  // first checkpoint is. NOT_FOUND: nothing. Null: likewise.
  std::function<absl::StatusOr<checkpoint::Head>(int64_t below)> older_start;
};

struct CheckpointQuery {
  CheckpointHistory history;
  // The step of the lost model: newer versions are not part of it.
  int64_t step = 0;
  // The ledger is already that of the history's base, which only has to exist.
  // Otherwise the ledger is rolled back to the version that is found.
  bool at_base = false;
  // A worker could not read this one; empty = none. Damaged versions are given
  // up, others are not: then it is the worker that cannot read.
  std::string doubtful = {};
  // The checkpoint that the job began with is of this step, and damaged.
  std::optional<int64_t> bad_start = std::nullopt;
};

struct CheckpointAnswer {
  // The base exists: nothing is rolled back.
  bool keeps_base = false;
  // Likewise: the doubtful version is whole.
  bool is_whole = false;
  // Not OK: the checkpoints cannot be read, but may be intact.
  absl::Status error;
  // Otherwise the newest intact version and its ledger; nothing if there is
  // none.
  std::optional<checkpoint::Version> version;
  v1::Ledger ledger;
  // If there is none, and the query has a bad start: what to begin with
  // instead. Not OK: there is nothing.
  absl::StatusOr<checkpoint::Head> start;
};

// Answers a query; reads only what is necessary. Errors come from the store.
// `progress`: of reading a doubtful version, which may take minutes.
absl::StatusOr<CheckpointAnswer> SearchCheckpoint(
    const CheckpointStore& store, const CheckpointQuery& query,
    const checkpoint::LoadProgress& progress = {});

// Answers queries in order, on its own thread. If the store cannot be read, it
// tries again for a while: giving up intact checkpoints would cost the whole
// training. Thread-safe.
class CheckpointSearcher {
 public:
  // For how long, and how often, reading is tried again.
  struct Patience {
    absl::Duration all = absl::Minutes(5);
    absl::Duration pause = absl::Seconds(2);
  };
  // `answer` is called on the searcher's thread and must not block.
  CheckpointSearcher(CheckpointStore store,
                     std::function<void(CheckpointAnswer answer)> answer,
                     Patience patience);
  CheckpointSearcher(CheckpointStore store,
                     std::function<void(CheckpointAnswer answer)> answer)
      : CheckpointSearcher(std::move(store), std::move(answer), Patience()) {}
  // Stops, and waits for the current search, which ends after the file or the
  // piece of a file that it is reading.
  ~CheckpointSearcher();

  // No new answer after this, except one that is being delivered. Returns at
  // once.
  void Stop();

  // Returns at once.
  void Search(CheckpointQuery query) { queries_.Push(std::move(query)); }

 private:
  void Run();
  CheckpointAnswer SearchPatiently(const CheckpointQuery& query);

  const CheckpointStore store_;
  const std::function<void(CheckpointAnswer answer)> answer_;
  const Patience patience_;
  Queue<CheckpointQuery> queries_;
  // Always empty; Stop closes it to end a pause.
  Queue<int> stop_{1};
  Thread thread_;  // last: it uses everything above
};

}  // namespace elasticdl::master
