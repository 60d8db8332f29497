// What workers and servers report about themselves, for the page, the API and
// the metrics: the parts of a step's time, memory, CPU, requests.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "elasticdl/trace/histogram.h"
#include "elasticdl/trace/kind.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Of one pod, from its last message.
struct PodUsage {
  int64_t memory_bytes = 0;
  double cpu_cores = 0;
  double cpu_seconds = 0;  // since the pod began
  // Workers.
  double records_per_s = 0;
  // How long a step takes, and how much of it the worker was busy itself: the
  // others wait for that.
  double step_seconds = 0;
  double own_seconds = 0;
  // Servers.
  int64_t rows = 0;
  int64_t model_bytes = 0;
  double pulls_per_s = 0;
  double pushes_per_s = 0;
  int64_t pulls = 0;
  int64_t pushes = 0;
};

// Per step, on average over all workers in their last messages.
struct StepBreakdown {
  int64_t steps = 0;
  std::array<double, trace::kTrainingKinds> seconds = {};
  double total = 0;
};

// The worker whose own part of a step takes longest.
struct Slowest {
  int64_t worker_id = 0;
  double own_seconds = 0;
  // Of the worker in the middle.
  double median_seconds = 0;
};

// Sums of the whole job; they only grow.
struct TelemetryTotals {
  std::array<double, trace::kTrainingKinds> phase_seconds = {};
  trace::DurationCounts steps;
  trace::DurationCounts pulls;
  trace::DurationCounts pushes;
  trace::DurationCounts pauses;
};

// Thread-compatible; pure.
class TelemetryBook {
 public:
  using Key = std::pair<bool, int64_t>;  // server, id
  // Workers without a report for this long are left out of the breakdown.
  static constexpr absl::Duration kFresh = absl::Seconds(5);

  void Add(absl::Time now, Key key, const v1::Telemetry& telemetry);
  void AddPause(absl::Duration pause) {
    totals_.pauses.Add(absl::ToDoubleSeconds(pause));
  }
  // The pod has ended. Pods without reports for long are forgotten anyway.
  void Remove(Key key) { pods_.erase(key); }

  // Null: it has said nothing yet.
  const PodUsage* Find(Key key) const;
  // Nothing: no worker has trained lately.
  std::optional<StepBreakdown> Breakdown(absl::Time now) const;
  // The same over the whole job.
  std::optional<StepBreakdown> WholeJob() const;
  // Nothing with fewer than two workers, or when they are about equal.
  std::optional<Slowest> SlowestWorker(absl::Time now) const;
  const TelemetryTotals& totals() const { return totals_; }

 private:
  struct Pod {
    PodUsage usage;
    absl::Time heard;
    int64_t steps = 0;
    std::array<double, trace::kTrainingKinds> phases = {};
  };

  void ForgetSilent(absl::Time now);

  std::map<Key, Pod> pods_;
  absl::Time next_forget_ = absl::InfinitePast();
  TelemetryTotals totals_;
};

}  // namespace elasticdl::master
