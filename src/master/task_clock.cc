#include "task_clock.h"

#include <algorithm>

namespace elasticdl::master {
namespace {

// The original's rule: generous, because the first tasks of a job load data and
// warm caches, and a false alarm costs a worker.
constexpr absl::Duration kShortestLimit = absl::Seconds(300);
// Exports the model: nothing is heard of a large one until it is done.
constexpr absl::Duration kShortestExportLimit = absl::Hours(1);
constexpr int kLongestTaskFactor = 3;

}  // namespace

void TaskClock::Completed(int64_t worker_id, v1::TaskType type,
                          absl::Time now) {
  absl::Duration& longest = longest_[type];
  longest = std::max(
      longest, now - std::max(times_.at(worker_id).in_use_since, restarted_));
}

absl::Duration TaskClock::Limit(v1::TaskType type) const {
  if (timeout_ > absl::ZeroDuration()) return timeout_;
  const absl::Duration shortest =
      type == v1::TRAIN_END_CALLBACK ? kShortestExportLimit : kShortestLimit;
  const auto it = longest_.find(type);
  if (it == longest_.end()) return shortest;
  return std::max(shortest, kLongestTaskFactor * it->second);
}

}  // namespace elasticdl::master
