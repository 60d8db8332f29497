// The plan of an experiment: what varies, what happens to the jobs, the number
// of repeats; and the list of runs that follows from it. Pure.
// docs/experiments.md has the grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/experiment/trace.h"

namespace elasticdl::experiment {

using Settings = std::map<std::string, std::string>;

// One thing that varies: `name` as in the plan ("workers"), and its values.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// A job of an experiment in which several share a machine.
struct SharedJob {
  std::string name;
  // Seconds after the start of the run.
  double arrives = 0;
  // How many workers it wants, and the fewest that it starts with.
  int64_t workers = 1;
  int64_t min_workers = 1;
  // Flags of `elasticdl train` besides those of all jobs.
  Settings flags;
};

// From `at` seconds on, the service needs this many slots.
struct LoadPoint {
  double at = 0;
  int64_t slots = 0;
};

// Several jobs, and maybe a service, on a machine with room for `slots`
// workers.
struct Sharing {
  int64_t slots = 0;
  std::vector<SharedJob> jobs;
  std::vector<LoadPoint> service;
};

struct Plan {
  std::string name;
  std::string description;
  // The file, for messages.
  std::string file;
  uint64_t seed = 1;
  int64_t repeats = 1;
  // End a run so many seconds after its first step with all workers; 0: when
  // the job ends by itself.
  double seconds = 0;
  // A run that takes longer has failed.
  double timeout = 900;
  // Flags of `elasticdl train` for all runs.
  Settings flags;
  std::vector<Axis> matrix;
  std::vector<TraceSpec> traces;
  Sharing sharing;
  // "Accuracy 0.97 is reached after …": an evaluation metric and its value.
  std::string target_metric;
  double target_value = 0;
  // Save and restart times of the analytic model; 0: as measured.
  double save = 0;
  double restart = 0;
  // In which line a flag, an axis or a trace is, for messages.
  std::map<std::string, int> lines;

  bool shared() const { return sharing.slots > 0; }
};

// Reads a file that the plan names; errors have its name.
using FileReader =
    std::function<absl::StatusOr<std::string>(const std::string& path)>;

// `file` is the plan's path: other files are relative to its folder.
// INVALID_ARGUMENT: one line "file:line: what is wrong".
absl::StatusOr<Plan> ParsePlan(const std::string& file, const std::string& text,
                               const FileReader& read);

// Who trains.
inline constexpr char kElasticdl[] = "elasticdl";
inline constexpr char kTorchrun[] = "torchrun";
inline constexpr char kMpirun[] = "mpirun";
// How several jobs share a machine.
inline constexpr char kElastic[] = "elastic";
inline constexpr char kGang[] = "gang";

// One run of the plan.
struct Run {
  // From everything below: a changed plan has other ids.
  std::string id;
  int64_t repeat = 0;
  // What distinguishes it from other runs: axis, "trace" → value.
  Settings settings;
  // Flags of `elasticdl train`, the axes' included.
  Settings flags;
  std::string peer = kElasticdl;
  // Only if several jobs share the machine: elastic or gang.
  std::string policy;
  int64_t workers = 1;
  // Its trace, and what comes of it.
  bool calm = true;
  double mtbf = 0;
  std::vector<Action> actions;

  // "workers=2 trace=kills", without the repeat.
  std::string Label() const;
};

// All runs in the order in which to run them: each cell of the matrix once per
// round, each round in another order. The same plan gives the same list.
std::vector<Run> ListRuns(const Plan& plan);

// The flag of `elasticdl train` that an axis sets ("workers" → "num_workers");
// empty for peer and policy.
std::string FlagOfAxis(const std::string& axis);

}  // namespace elasticdl::experiment
