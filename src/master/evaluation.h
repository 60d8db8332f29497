// Evaluation during and after training: decides when one is due, and computes
// the metrics from the workers' sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"
#include "task_manager.h"

namespace elasticdl::master {

struct EvaluationOptions {
  // Evaluate at every step that is a multiple; 0 = never.
  int64_t evaluation_steps = 0;
  // Evaluate by time: first after start_delay, then `throttle` after the end of
  // the last one. Zero throttle = never.
  absl::Duration start_delay = absl::Seconds(100);
  absl::Duration throttle = absl::ZeroDuration();
};

struct EvaluationResult {
  int64_t version = 0;
  // The value of each metric, or why there is none.
  absl::Status status;
  std::map<std::string, double> metrics;
  int64_t records = 0;
  // Quarantined records; above 0 the values do not cover all data.
  int64_t skipped_records = 0;
  absl::Duration duration;
};

// Thread-compatible. Pure; time is an argument. The evaluation tasks belong to
// the TaskManager, which grants them, repeats those of lost workers and makes
// sure that each range is reported once.
class EvaluationService {
 public:
  // `tasks` outlives this. `now`: the start of the job.
  EvaluationService(const EvaluationOptions& options, TaskManager& tasks,
                    absl::Time now);

  // The worker waits at `step`: should it be evaluated? True once per step.
  bool DueAtStep(int64_t step) const;
  // The model has passed a step to evaluate since the last evaluation. For
  // parameter servers, where no worker waits at a step.
  bool DueSince(int64_t step) const;
  // One is due by time, at any step. Stays true until Start.
  bool DueByTime(absl::Time now) const;
  // When DueByTime becomes true; InfiniteFuture while one runs, or if never.
  absl::Time NextDueTime() const;
  // Training is done and its last version has not been evaluated.
  bool DueAtEnd() const;

  // Creates the tasks. FAILED_PRECONDITION while one runs.
  absl::Status Start(absl::Time now, int64_t version);
  // The version was evaluated before this service was created.
  void SetEvaluated(int64_t version) { version_ = std::max(version_, version); }
  bool running() const { return running_; }
  int64_t version() const { return version_; }

  // A worker's TaskDone of an EVALUATION task. A repeated one is ignored; one
  // of a task that the worker does not hold is FAILED_PRECONDITION; metrics
  // whose names, kinds or lengths differ from the other workers' are
  // INVALID_ARGUMENT, and the task stays open.
  absl::Status Report(absl::Time now, int64_t worker_id,
                      const v1::TaskDone& done);
  // Returns the result once, when all tasks are reported or quarantined. Call
  // it after Report, and after a task failed or a worker was lost.
  std::optional<EvaluationResult> TakeResult(absl::Time now);

  // After a rollback (TaskManager::CutBack) to `step`: an evaluation of a later
  // version is void.
  void CutBack(absl::Time now, int64_t step);

 private:
  struct Sums {
    std::string kind;
    std::vector<double> sums;
  };

  absl::Status Check(const v1::TaskDone& done) const;
  void Add(const v1::TaskDone& done);
  void Close(absl::Time now);

  const EvaluationOptions options_;
  TaskManager& tasks_;
  absl::Time next_due_;
  bool running_ = false;
  int64_t version_ = -1;  // Of the running or last one.
  absl::Time started_;
  bool any_report_ = false;
  std::map<std::string, Sums> sums_;
};

}  // namespace elasticdl::master
