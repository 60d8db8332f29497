// How fast the job trains.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace elasticdl::master {

// Records per second over the last seconds, or since the step before the last
// if that is longer ago. Thread-compatible.
class RateMeter {
 public:
  explicit RateMeter(absl::Duration window = absl::Seconds(5))
      : window_(window) {}
  void Add(absl::Time now, int64_t records);
  double PerSecond(absl::Time now);

 private:
  const absl::Duration window_;
  std::deque<std::pair<absl::Time, int64_t>> samples_;
  int64_t sum_ = 0;
};

// The speed of a job and that of its evaluations: records that a training job
// evaluates are none that it trains. Thread-compatible.
class JobRate {
 public:
  explicit JobRate(bool trains) : trains_(trains) {}
  void OnTrained(absl::Time now, int64_t records) {
    training_.Add(now, records);
  }
  // An evaluation or prediction task is done.
  void OnTaskDone(absl::Time now, int64_t records) { tasks_.Add(now, records); }

  double PerSecond(absl::Time now) {
    return trains_ ? training_.PerSecond(now) : tasks_.PerSecond(now);
  }
  // Of an evaluation while it runs.
  double TasksPerSecond(absl::Time now) { return tasks_.PerSecond(now); }

 private:
  const bool trains_;
  RateMeter training_;
  RateMeter tasks_;
};

}  // namespace elasticdl::master
