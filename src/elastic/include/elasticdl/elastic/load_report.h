// Tells the master that this member of a new world gets on with loading state,
// so that slow is not taken for stuck.
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
  // `limit`: the silence that the master puts up with.
  LoadReport(int64_t generation, absl::Duration limit,
             std::function<void(v1::WorkerMessage)> send);

  // `bytes` of `total` have been moved in this stage. To be called only when
  // that is progress: the stage is new, or there are more bytes. Sends a new
  // stage at once, bytes now and then.
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
