// What a run measured, from the event log and the audit of its jobs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "elasticdl/experiment/trace.h"

namespace elasticdl::experiment {

// An action that was carried out, and when (seconds since 1970).
struct Delivered {
  double time = 0;
  ActionKind kind = ActionKind::kKill;
  int64_t count = 1;
};

// How many workers a job (or slots a service) had from `at` on, in seconds
// after the start of the run.
struct TimelinePoint {
  double at = 0;
  std::string job;
  int64_t workers = 0;
};

// One job, or peer. Seconds, unless the name says otherwise; -1: unknown.
struct Measured {
  // succeeded, stopped, failed; "" if the log does not say.
  std::string state;
  // From the start of the job to its first step with all workers.
  double startup = -1;
  // The window of the measurement, and what was trained in it.
  double seconds = 0;
  int64_t records = 0;
  double records_per_second = 0;
  // From the start of the job to its end.
  double elapsed = 0;
  int64_t steps = 0;
  // For each kill: until the first step known to be committed after it.
  std::vector<double> recovery_ms;
  // How long the members did not train when a world was formed: after a loss,
  // when somebody joined or left in an orderly way.
  std::vector<double> loss_pause_ms;
  std::vector<double> join_pause_ms;
  // How long a checkpoint took.
  std::vector<double> save_ms;
  // From the first step until an evaluation reached the target; its last value.
  double time_to_target = -1;
  double last_metric = -1;
  // Members of the world, averaged over the window.
  double mean_workers = 0;
  int64_t kills = 0;
};

struct MeasureOptions {
  int64_t workers = 1;
  std::string target_metric;
  double target_value = 0;
  // Events after this time do not count; 0: all do.
  double end = 0;
  std::vector<Delivered> delivered;
};

Measured Measure(absl::string_view event_log, const MeasureOptions& options);

// What an audit proves.
struct LedgerCheck {
  // Every committed range once; `problem` says what is wrong.
  bool exact = false;
  std::string problem;
  int64_t records = 0;
  // Epochs of which the same records, as many as of the first one, are there.
  int64_t complete_epochs = 0;
};
// `finished`: the job has trained all epochs, so that none may lack records of
// those that others have.
LedgerCheck CheckLedger(const std::string& audit, bool finished);

// Worlds of a job as points of a timeline; `start` is its zero.
std::vector<TimelinePoint> WorkersOverTime(absl::string_view event_log,
                                           const std::string& job,
                                           double start);

}  // namespace elasticdl::experiment
