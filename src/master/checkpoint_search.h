// What a model that was lost is restored from: the newest checkpoint of its
// history that is whole. Looking for it reads whole checkpoints, which may take
// minutes, so it is done beside the controller: it asks with a CheckpointQuery
// and is told the CheckpointAnswer later.
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
  // The ledger of a version whose checksums are right. DATA_LOSS and NOT_FOUND
  // are about the version, other errors about the disk.
  std::function<absl::StatusOr<v1::Ledger>(const std::string& path)>
      load_ledger;
};

struct CheckpointQuery {
  CheckpointHistory history;
  // The model was at this step: newer versions are not its.
  int64_t step = 0;
  // The ledger is already that of the history's base, which only has to be
  // there still. Else the ledger falls back to what is found.
  bool at_base = false;
};

struct CheckpointAnswer {
  // The base is there: nothing has to fall back.
  bool keeps_base = false;
  // Not OK: the checkpoints cannot be read. They may be intact.
  absl::Status error;
  // Else: the newest whole version and its ledger. Nothing = there is none.
  std::optional<checkpoint::Version> version;
  v1::Ledger ledger;
};

// Reads what it has to. Pure but for the store. An error is the store's.
absl::StatusOr<CheckpointAnswer> SearchCheckpoint(const CheckpointStore& store,
                                                  const CheckpointQuery& query);

// Searches on a thread of its own, one query after the other. A store that
// cannot be read is tried again for a while: to give up checkpoints that are
// intact would cost the whole training. Thread-safe.
class CheckpointSearcher {
 public:
  // How long, and how long after a failure, a store is tried again.
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
  // Stops, and waits for the search under way: reading a file cannot be
  // interrupted.
  ~CheckpointSearcher();

  // No answer that is not under way comes any more. Returns at once.
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
  // Never holds anything; closed by Stop, which ends a pause.
  Queue<int> stop_{1};
  Thread thread_;  // last: it uses everything above
};

}  // namespace elasticdl::master
