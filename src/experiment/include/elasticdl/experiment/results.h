// Results of runs: stored as lines of JSON, summarized per cell of the matrix,
// written as tables. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/experiment/measure.h"
#include "elasticdl/experiment/plan.h"
#include "elasticdl/experiment/statistics.h"

namespace elasticdl::experiment {

// Several jobs on one machine. Seconds.
struct SharedMeasured {
  // From the first arrival to the last end.
  double makespan = 0;
  // Job → from its arrival to its first step; to its end.
  std::map<std::string, double> waiting;
  std::map<std::string, double> completion;
  // Share of the slots that were in use, averaged over the makespan.
  double utilisation = 0;
  std::vector<TimelinePoint> timeline;
};

struct RunResult {
  std::string id;
  int64_t repeat = 0;
  Settings settings;
  std::string peer;
  std::string policy;
  int64_t workers = 1;
  bool calm = true;
  double mtbf = 0;
  bool ok = false;
  // Why it is not.
  std::string reason;
  // Seconds since 1970.
  double began = 0;
  Measured measured;
  SharedMeasured shared;
  // On a cluster; the clock of the master there, how far behind this one.
  bool on_cluster = false;
  double clock_offset = 0;
  // Of all processes of the run; of the machine. -1, 0: unknown, on a cluster.
  double cpu_seconds = 0;
  double wall_seconds = 0;
  int64_t cores = 1;
  // The machine's load before the run: other programs disturb. -1: unknown.
  double load = 0;
  // exact, "" (no audit), or what is wrong.
  std::string ledger;
  int64_t ledger_records = 0;

  // -1: unknown.
  double CpuUtilisation() const;
};

// One line, without its end. Never fails: bytes that are no text are replaced.
std::string ResultLine(const RunResult& result);
absl::StatusOr<RunResult> ParseResultLine(absl::string_view line);

// All results in a file of such lines, the newest of each run. A line that a
// crash has left incomplete at the end is passed over; others are errors
// ("line 3: …").
absl::StatusOr<std::map<std::string, RunResult>> ParseResults(
    absl::string_view text);

// The results of one cell of the matrix.
struct Cell {
  Settings settings;
  std::string peer;
  std::string policy;
  int64_t workers = 1;
  bool calm = true;
  double mtbf = 0;
  // Successful runs.
  std::vector<const RunResult*> runs;
  Estimate throughput;
  // Throughput relative to the same cell without a trace, in the same round if
  // there is one; count 0 if there is none.
  Estimate goodput;
  std::vector<double> recovery_ms;
  std::vector<double> loss_pause_ms;
  std::vector<double> join_pause_ms;
  std::vector<double> save_ms;
  Estimate time_to_target;
  Estimate cpu_utilisation;
  Estimate makespan;
  Estimate waiting;
  Estimate utilisation;

  // The settings but for some, "workers=2 peer=torchrun".
  std::string LabelWithout(const std::vector<std::string>& names) const;
};

struct Summary {
  std::vector<Cell> cells;
  int planned = 0;
  int done = 0;
  int failed = 0;
  // Jobs whose ledger was checked, and was exact.
  int ledgers = 0;
  int exact = 0;
  // Costs of the analytic model, where they come from; save and restart are 0
  // if nothing is known.
  CheckpointRestart cost;
  std::string cost_source;
};

// `results` must outlive the summary. Cells in the order of the plan; results
// of other plans are passed over.
Summary Summarize(const Plan& plan,
                  const std::map<std::string, RunResult>& results);

// The tables: one row per run.
std::string ResultsCsv(const Plan& plan, const Summary& summary,
                       const std::map<std::string, RunResult>& results);
// The summary and all runs.
std::string ResultsJson(const Plan& plan, const Summary& summary,
                        const std::map<std::string, RunResult>& results);

}  // namespace elasticdl::experiment
