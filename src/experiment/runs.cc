// From a Plan to the list of its runs.
#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/experiment/plan.h"

namespace elasticdl::experiment {
namespace {

// Of all that a run's result depends on: one that is there already is used
// again only for the same run.
std::string Fingerprint(const Run& run, const Plan& plan) {
  std::string text = absl::StrCat(
      run.repeat, "\n", run.Label(), "\n", run.peer, "\n", run.policy, "\n",
      plan.seconds, "\n", plan.target_metric, plan.target_value, "\n",
      absl::StrJoin(run.flags, " ", absl::PairFormatter("=")), "\n",
      TraceCsv(run.actions));
  // The CSV has neither.
  for (const Action& action : run.actions) {
    absl::StrAppend(&text, action.step, " ", action.pick, "\n");
  }
  if (plan.shared()) {
    absl::StrAppend(&text, plan.sharing.slots);
    for (const SharedJob& job : plan.sharing.jobs) {
      absl::StrAppend(&text, "\n", job.name, " ", job.arrives, " ", job.workers,
                      " ", job.min_workers, " ",
                      absl::StrJoin(job.flags, " ", absl::PairFormatter("=")));
    }
    for (const LoadPoint& point : plan.sharing.service) {
      absl::StrAppend(&text, "\n", point.at, " ", point.slots);
    }
  }
  return Sha256Hex(text).substr(0, 12);
}

void Apply(const Axis& axis, const std::string& value, Run* run) {
  run->settings[axis.name] = value;
  const std::string flag = FlagOfAxis(axis.name);
  if (axis.name == "peer") run->peer = value;
  if (axis.name == "policy") run->policy = value;
  if (!flag.empty()) run->flags[flag] = value;
}

// The cells of the matrix, each with each trace.
std::vector<Run> Cells(const Plan& plan,
                       std::vector<const TraceSpec*>* traces) {
  std::vector<Run> cells(1);
  cells[0].flags = plan.flags;
  if (plan.shared()) cells[0].policy = kElastic;
  for (const Axis& axis : plan.matrix) {
    std::vector<Run> next;
    for (const Run& cell : cells) {
      for (const std::string& value : axis.values) {
        next.push_back(cell);
        Apply(axis, value, &next.back());
      }
    }
    cells = std::move(next);
  }
  std::vector<Run> all;
  for (const Run& cell : cells) {
    for (const TraceSpec& trace : plan.traces) {
      all.push_back(cell);
      traces->push_back(&trace);
      if (!trace.name.empty()) all.back().settings["trace"] = trace.name;
    }
  }
  return all;
}

void Shuffle(std::vector<size_t>* order, std::mt19937_64& random) {
  for (size_t i = order->size(); i > 1; --i) {
    std::swap((*order)[i - 1], (*order)[random() % i]);
  }
}

}  // namespace

std::string Run::Label() const {
  return absl::StrJoin(settings, " ", absl::PairFormatter("="));
}

std::vector<Run> ListRuns(const Plan& plan) {
  std::vector<const TraceSpec*> traces;
  const std::vector<Run> cells = Cells(plan, &traces);
  std::mt19937_64 random(plan.seed);
  std::vector<size_t> order(cells.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A run of no given length may take until its timeout.
  const double horizon = plan.seconds > 0 ? plan.seconds : plan.timeout;
  std::vector<Run> runs;
  for (int64_t repeat = 0; repeat < plan.repeats; ++repeat) {
    // All cells in each round, each time in another order: what changes slowly
    // on the machine must not favour some of them.
    Shuffle(&order, random);
    for (const size_t cell : order) {
      Run run = cells[cell];
      run.repeat = repeat;
      const auto workers = run.flags.find("num_workers");
      if (workers != run.flags.end() &&
          !absl::SimpleAtoi(workers->second, &run.workers)) {
        run.workers = 1;
      }
      const TraceSpec& trace = *traces[cell];
      run.calm = trace.calm();
      run.mtbf = trace.mtbf;
      // Cells that are compared get the same kills.
      run.actions = DrawActions(
          trace, Fnv1a(absl::StrCat(plan.seed, " ", trace.name, " ", repeat)),
          horizon);
      run.id = Fingerprint(run, plan);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace elasticdl::experiment
