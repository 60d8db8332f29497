// The data of the status page, the JSON API and the metrics.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::master {

struct StatusPod {
  std::string name;
  int64_t id = 0;
  std::string type;  // worker, ps
  pid_t pid = 0;
  std::string state;
  // Why it is not running; may be empty.
  std::string message;
};

struct StatusEvaluation {
  int64_t step = 0;
  std::map<std::string, double> metrics;
};

struct JobStatus {
  std::string job;
  // running, succeeded, failed, stopped.
  std::string state = "running";
  // The reason of the state; may be empty.
  std::string reason;
  int64_t generation = 0;
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t records_done = 0;
  int64_t records_total = 0;
  double records_per_s = 0;
  std::optional<double> loss;
  int64_t workers = 0;
  int64_t target_workers = 0;
  std::vector<StatusPod> pods;
  std::vector<StatusEvaluation> evaluations;
};

// One point of the charts.
struct StatusPoint {
  double seconds = 0;  // since the first
  int64_t step = 0;
  std::optional<double> loss;
  double records_per_s = 0;
};

// The last status and the history of its numbers. Thread-safe.
class StatusBoard {
 public:
  void Set(JobStatus status, absl::Time now);
  JobStatus Get() const;
  // At most kMaxPoints over the whole job, wider apart the older the job is.
  std::vector<StatusPoint> History() const;

  static constexpr size_t kMaxPoints = 512;

 private:
  void AddPoint(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  JobStatus status_ ABSL_GUARDED_BY(mu_);
  std::vector<StatusPoint> points_ ABSL_GUARDED_BY(mu_);
  absl::Time first_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // Seconds between two points; doubles whenever the points are thinned.
  double spacing_ ABSL_GUARDED_BY(mu_) = 0.5;
};

}  // namespace elasticdl::master
