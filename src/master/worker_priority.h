// --worker_pod_priority: which workers get the high priority class.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace elasticdl::master {

// One class for all workers, or a fraction of "high" ones among "low" ones.
struct WorkerPriority {
  // The class of all workers when there is no fraction; may be empty.
  std::string all;
  // In [0, 1], or negative for none.
  double high_fraction = -1;
};

// "", "high", "low" or any class name, "0.5", "high=0.5". INVALID_ARGUMENT for
// a fraction outside [0, 1].
absl::StatusOr<WorkerPriority> ParseWorkerPriority(const std::string& text);

// How many of `num_workers` are high: rounded up.
int64_t NumHighPriority(int64_t num_workers, double fraction);

// Which: alternately from both ends, e.g. {0, 1, 2, 8, 9} for 10 and 0.5.
std::set<int64_t> HighPrioritySlots(int64_t num_workers, double fraction);

}  // namespace elasticdl::master
