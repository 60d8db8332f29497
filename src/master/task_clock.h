// How long workers have made no progress on the task in use, and the limit for
// that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Thread-compatible. Only the task in use has a clock: one that waits behind
// another does not start it.
class TaskClock {
 public:
  // `timeout`: how long a worker may be silent. Zero: the longer of 300 s (an
  // hour for the end of training) and three times the longest completed task of
  // the same type.
  explicit TaskClock(absl::Duration timeout) : timeout_(timeout) {}

  // The worker starts another task, or its clock must restart for another
  // reason.
  void Begin(int64_t worker_id, absl::Time now) {
    times_[worker_id] = {now, now};
  }
  // The same for all. Costs the same for any number of workers: each of them
  // calls it while a world is formed.
  void RestartAll(absl::Time now) { restarted_ = now; }
  // A sign of the task in use.
  void Report(int64_t worker_id, absl::Time now) {
    times_[worker_id].last_report = now;
  }
  // The task in use is done: others of its type may take as long.
  void Completed(int64_t worker_id, v1::TaskType type, absl::Time now);
  void Forget(int64_t worker_id) { times_.erase(worker_id); }

  absl::Duration Limit(v1::TaskType type) const;
  absl::Time LastReport(int64_t worker_id) const {
    return std::max(times_.at(worker_id).last_report, restarted_);
  }

 private:
  struct Times {
    // When the task in use was begun, and the last sign of it.
    absl::Time in_use_since;
    absl::Time last_report;
  };

  absl::Duration timeout_;
  std::map<int64_t, Times> times_;  // By worker.
  // The last RestartAll: no earlier time counts.
  absl::Time restarted_ = absl::InfinitePast();
  std::map<v1::TaskType, absl::Duration> longest_;
};

}  // namespace elasticdl::master
