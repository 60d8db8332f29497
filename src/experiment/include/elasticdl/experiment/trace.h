// What happens to a job while it trains: kills, preemptions, joins, …, at times
// or steps. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::experiment {

enum class ActionKind {
  kKill,        // SIGKILL to workers
  kPreempt,     // SIGTERM to workers: the notice of a preemption
  kStop,        // SIGSTOP to workers, SIGCONT after `seconds`
  kJoin,        // more workers
  kLeave,       // fewer workers
  kWorkers,     // this number of workers
  kKillServer,  // SIGKILL to parameter servers
  kServers,     // this number of parameter servers
};

// "kill", "preempt", …
absl::string_view ActionName(ActionKind kind);
// INVALID_ARGUMENT with the names that exist.
absl::StatusOr<ActionKind> ParseActionKind(absl::string_view name);

struct Action {
  ActionKind kind = ActionKind::kKill;
  // When: seconds after the job's first step with all its workers; or, if
  // `step` >= 0, when the job has done that step.
  double at = 0;
  int64_t step = -1;
  // How many workers or servers it concerns, or their new number.
  int64_t count = 1;
  // Of kStop.
  double seconds = 0;
  // Which members: the first is member floor(pick * size). In [0, 1).
  double pick = 0;
};

// Where actions come from.
struct TraceSpec {
  std::string name;
  // By hand or from a file, ordered by time; `pick` is drawn later.
  std::vector<Action> actions;
  // Above 0: `kind` every `mtbf` seconds on average, the time in between drawn
  // from a Weibull distribution; shape 1 is a Poisson process.
  double mtbf = 0;
  double shape = 1;
  ActionKind kind = ActionKind::kKill;

  // Nothing ever happens: what others are compared with.
  bool calm() const { return mtbf <= 0 && actions.empty(); }
};

// The actions of one run before `horizon` seconds, ordered by time, those at
// steps first. The same seed gives the same ones.
std::vector<Action> DrawActions(const TraceSpec& spec, uint64_t seed,
                                double horizon);

// A trace as CSV with the header `time,action[,count[,seconds]]`. Times are
// divided by `speed`. Errors name `file` and the line.
absl::StatusOr<std::vector<Action>> ParseTraceCsv(const std::string& file,
                                                  absl::string_view text,
                                                  double speed);
std::string TraceCsv(const std::vector<Action>& actions);

// "10s", "1.5m", "200ms", or a number of seconds; not negative.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

}  // namespace elasticdl::experiment
