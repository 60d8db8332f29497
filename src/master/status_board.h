// The data of the page, the JSON API and the metrics.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/page/history.h"
#include "task_types.h"
#include "telemetry_book.h"

namespace elasticdl::master {

struct StatusPod {
  std::string name;
  int64_t id = 0;
  std::string type;  // worker, ps
  pid_t pid = 0;
  std::string state;
  // Why it is not running; may be empty.
  std::string message;
  // Nothing: it has not reported yet.
  std::optional<PodUsage> usage = std::nullopt;
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
  std::optional<double> learning_rate;
  LedgerCounts ledger;
  int64_t workers = 0;
  int64_t target_workers = 0;
  // Parameter servers that were asked for; 0: the job has none.
  int64_t target_servers = 0;
  std::vector<StatusPod> pods;
  std::optional<StepBreakdown> step_time;
  std::optional<Slowest> slowest;
  TelemetryTotals totals;
  // The last ones.
  static constexpr size_t kMaxEvaluations = 100;
  std::vector<StatusEvaluation> evaluations;
};

// One point of /api/history.
struct StatusPoint {
  double seconds = 0;  // since the first
  int64_t step = 0;
  std::optional<double> loss;
  double records_per_s = 0;
};

// The last status and the history of the job. Thread-safe.
class StatusBoard {
 public:
  void Set(JobStatus status);
  JobStatus Get() const;
  // How long ago Set was called; nothing before the first time.
  std::optional<absl::Duration> Age(absl::Time now) const;

  // A line of the event log. Invalid lines are ignored.
  void AddEvent(const std::string& line);
  // The answer of /api/v1/update; `now` is the time of day.
  struct Answer {
    std::string json;
    uint64_t cursor = 0;
    // The end of the job is in it.
    bool ended = false;
  };
  Answer Update(uint64_t since, absl::Time now) const;
  std::vector<StatusPoint> Points() const;
  // What the model consists of, as JSON; empty: not known yet.
  std::string Model() const;

  // Waits until the history has changed after `cursor`, at least for `spacing`
  // and at most for `period`. False: there will be no more changes.
  bool WaitNews(uint64_t cursor, absl::Duration spacing,
                absl::Duration period) const;
  uint64_t cursor() const;
  // Ends all waits; changes made before are still returned.
  void Close();
  bool closed() const;

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  JobStatus status_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Time> set_at_ ABSL_GUARDED_BY(mu_);
  page::History history_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace elasticdl::master
