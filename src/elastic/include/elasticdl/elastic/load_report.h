// Reports to the master that this member of a new world makes progress loading
// its state, so that a slow member is not evicted as stuck.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::elastic {

// Thread-compatible. One per world that is entered.
class LoadReport {
 public:
  // `limit`: how long the master waits without a report.
  LoadReport(int64_t generation, absl::Duration limit,
             std::function<void(v1::WorkerMessage)> send);

  // `bytes` of `total` have been moved in this stage. Call it only after
  // progress: the stage is new, or there are more bytes. A new stage is sent at
  // once, bytes at intervals.
  void Tell(absl::Time now, v1::Loading::Stage stage, int64_t bytes = 0,
            int64_t total = 0);

 private:
  const int64_t generation_;
  const absl::Duration interval_;
  const std::function<void(v1::WorkerMessage)> send_;
  std::optional<v1::Loading::Stage> stage_;
  absl::Time sent_;
};

}  // namespace elasticdl::elastic
