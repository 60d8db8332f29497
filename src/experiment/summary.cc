// Results summed up per cell, and as tables.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/experiment/results.h"
#include "result_json.h"

namespace elasticdl::experiment {
namespace {

using Json = nlohmann::ordered_json;

void Append(const std::vector<double>& more, std::vector<double>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

// A cell's settings without its trace: cells that are compared share them.
Settings WithoutTrace(const Settings& settings) {
  Settings rest = settings;
  rest.erase("trace");
  return rest;
}

// The throughput without a trace, of the round `repeat` or of all; 0 if
// unknown.
double Baseline(const Summary& summary, const Cell& cell, int64_t repeat) {
  std::vector<double> all;
  for (const Cell& other : summary.cells) {
    if (!other.calm ||
        WithoutTrace(other.settings) != WithoutTrace(cell.settings)) {
      continue;
    }
    for (const RunResult* run : other.runs) {
      // It was made nearest in time, on the same machine in the same state.
      if (run->repeat == repeat) return run->measured.records_per_second;
      all.push_back(run->measured.records_per_second);
    }
  }
  return EstimateMean(all).mean;
}

void FillCell(Cell* cell) {
  std::vector<double> throughput, target, cpu, makespan, waiting, used;
  for (const RunResult* run : cell->runs) {
    throughput.push_back(run->measured.records_per_second);
    if (run->measured.time_to_target >= 0) {
      target.push_back(run->measured.time_to_target);
    }
    if (run->CpuUtilisation() >= 0) cpu.push_back(run->CpuUtilisation());
    Append(run->measured.recovery_ms, &cell->recovery_ms);
    Append(run->measured.loss_pause_ms, &cell->loss_pause_ms);
    Append(run->measured.join_pause_ms, &cell->join_pause_ms);
    Append(run->measured.save_ms, &cell->save_ms);
    if (run->policy.empty()) continue;
    makespan.push_back(run->shared.makespan);
    used.push_back(run->shared.utilisation);
    double sum = 0;
    for (const auto& [job, seconds] : run->shared.waiting) sum += seconds;
    const size_t jobs = std::max<size_t>(1, run->shared.waiting.size());
    waiting.push_back(sum / static_cast<double>(jobs));
  }
  cell->throughput = EstimateMean(throughput);
  cell->time_to_target = EstimateMean(target);
  cell->cpu_utilisation = EstimateMean(cpu);
  cell->makespan = EstimateMean(makespan);
  cell->waiting = EstimateMean(waiting);
  cell->utilisation = EstimateMean(used);
}

void FillGoodput(Summary* summary) {
  for (Cell& cell : summary->cells) {
    if (cell.calm) continue;
    std::vector<double> ratios;
    for (const RunResult* run : cell.runs) {
      const double baseline = Baseline(*summary, cell, run->repeat);
      if (baseline > 0) {
        ratios.push_back(run->measured.records_per_second / baseline);
      }
    }
    cell.goodput = EstimateMean(ratios);
  }
}

double MedianSeconds(const std::vector<double>& ms) {
  return Percentile(ms, 50) / 1000;
}

// Costs of saving and restarting: the plan's, else those of a peer that saves
// and restarts, else those of ElasticDL itself.
void FillCost(const Plan& plan, Summary* summary) {
  if (plan.save > 0 || plan.restart > 0) {
    summary->cost = {plan.save, plan.restart};
    summary->cost_source = "given in the plan";
    return;
  }
  for (const bool of_peer : {true, false}) {
    std::vector<double> save, restart;
    std::string peer;
    for (const Cell& cell : summary->cells) {
      if ((cell.peer != kElasticdl) != of_peer) continue;
      // Times of two peers have no common mean.
      if (of_peer && !peer.empty() && cell.peer != peer) continue;
      peer = cell.peer;
      Append(cell.save_ms, &save);
      if (of_peer) Append(cell.recovery_ms, &restart);
      for (const RunResult* run : cell.runs) {
        if (!of_peer && run->measured.startup > 0) {
          restart.push_back(run->measured.startup * 1000);
        }
      }
    }
    if (restart.empty() || save.empty()) continue;
    summary->cost = {MedianSeconds(save), MedianSeconds(restart)};
    summary->cost_source = absl::StrCat("measured, of ", peer);
    return;
  }
}

std::string Quoted(const std::string& text) {
  if (!absl::StrContains(text, ',') && !absl::StrContains(text, '"') &&
      !absl::StrContains(text, '\n')) {
    return text;
  }
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string Number(double value) {
  if (!std::isfinite(value) || value == -1) return "";
  return absl::StrFormat("%.6g", value);
}

std::string Median(const std::vector<double>& values) {
  return values.empty() ? "" : Number(Percentile(values, 50));
}

std::vector<std::string> AxisNames(const Plan& plan) {
  std::vector<std::string> names;
  for (const Axis& axis : plan.matrix) names.push_back(axis.name);
  if (plan.traces.size() > 1 || !plan.traces[0].name.empty()) {
    names.push_back("trace");
  }
  return names;
}

std::string Row(const Plan& plan, const RunResult& run, double goodput) {
  std::vector<std::string> row = {run.id, absl::StrCat(run.repeat)};
  for (const std::string& name : AxisNames(plan)) {
    const auto it = run.settings.find(name);
    row.push_back(it == run.settings.end() ? "" : Quoted(it->second));
  }
  const Measured& m = run.measured;
  for (const std::string& text :
       {std::string(run.ok ? "ok" : "failed"),
        Number(m.records_per_second),
        goodput > 0 ? Number(goodput) : "",
        Number(m.seconds),
        absl::StrCat(m.records),
        absl::StrCat(m.steps),
        Number(m.startup),
        Number(m.elapsed),
        absl::StrCat(m.kills),
        Median(m.recovery_ms),
        m.recovery_ms.empty() ? "" : Number(Percentile(m.recovery_ms, 100)),
        Median(m.loss_pause_ms),
        Median(m.join_pause_ms),
        Median(m.save_ms),
        Number(m.time_to_target),
        Number(m.last_metric),
        Number(m.mean_workers),
        Number(run.cpu_seconds),
        Number(run.CpuUtilisation()),
        Number(run.load),
        Quoted(run.ledger),
        absl::StrCat(run.ledger_records),
        Number(run.shared.makespan),
        Number(run.shared.utilisation),
        Quoted(run.reason)}) {
    row.push_back(text);
  }
  return absl::StrJoin(row, ",");
}

// Numbers in the order of numbers.
bool Before(const Settings& a, const Settings& b) {
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second == value) continue;
    double x = 0;
    double y = 0;
    if (absl::SimpleAtod(value, &x) && absl::SimpleAtod(other->second, &y)) {
      return x < y;
    }
    return value < other->second;
  }
  return false;
}

Json EstimateJson(const Estimate& estimate) {
  if (estimate.count == 0) return nullptr;
  return {{"mean", estimate.mean},
          {"low", estimate.low},
          {"high", estimate.high},
          {"runs", estimate.count}};
}

Json SpreadJson(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  return {{"count", values.size()},
          {"p50", Percentile(values, 50)},
          {"p90", Percentile(values, 90)},
          {"p99", Percentile(values, 99)},
          {"max", Percentile(values, 100)}};
}

Json CellJson(const Cell& cell) {
  return {{"settings", cell.settings},
          {"runs", cell.runs.size()},
          {"records_per_second", EstimateJson(cell.throughput)},
          {"goodput", EstimateJson(cell.goodput)},
          {"recovery_ms", SpreadJson(cell.recovery_ms)},
          {"loss_pause_ms", SpreadJson(cell.loss_pause_ms)},
          {"join_pause_ms", SpreadJson(cell.join_pause_ms)},
          {"save_ms", SpreadJson(cell.save_ms)},
          {"time_to_target", EstimateJson(cell.time_to_target)},
          {"cpu_utilisation", EstimateJson(cell.cpu_utilisation)},
          {"makespan", EstimateJson(cell.makespan)},
          {"waiting", EstimateJson(cell.waiting)},
          {"utilisation", EstimateJson(cell.utilisation)}};
}

}  // namespace

std::string Cell::LabelWithout(const std::vector<std::string>& names) const {
  Settings rest = settings;
  for (const std::string& name : names) rest.erase(name);
  std::vector<std::string> parts;
  for (const auto& [name, value] : rest) {
    // Words speak for themselves, numbers do not.
    const bool number =
        value.find_first_not_of("0123456789.") == std::string::npos;
    parts.push_back(number ? absl::StrCat(name, " ", value) : value);
  }
  return absl::StrJoin(parts, ", ");
}

Summary Summarize(const Plan& plan,
                  const std::map<std::string, RunResult>& results) {
  Summary summary;
  for (const Run& run : ListRuns(plan)) {
    ++summary.planned;
    auto cell = std::find_if(
        summary.cells.begin(), summary.cells.end(),
        [&](const Cell& one) { return one.settings == run.settings; });
    if (cell == summary.cells.end()) {
      Cell added;
      added.settings = run.settings;
      added.peer = run.peer;
      added.policy = run.policy;
      added.workers = run.workers;
      added.calm = run.calm;
      added.mtbf = run.mtbf;
      summary.cells.push_back(std::move(added));
      cell = summary.cells.end() - 1;
    }
    const auto result = results.find(run.id);
    if (result == results.end()) continue;
    ++summary.done;
    if (!result->second.ledger.empty()) ++summary.ledgers;
    if (result->second.ledger == "exact") ++summary.exact;
    if (result->second.ok) {
      cell->runs.push_back(&result->second);
    } else {
      ++summary.failed;
    }
  }
  std::stable_sort(summary.cells.begin(), summary.cells.end(),
                   [](const Cell& a, const Cell& b) {
                     return Before(a.settings, b.settings);
                   });
  for (Cell& cell : summary.cells) FillCell(&cell);
  FillGoodput(&summary);
  FillCost(plan, &summary);
  return summary;
}

std::string ResultsCsv(const Plan& plan, const Summary& summary,
                       const std::map<std::string, RunResult>& results) {
  std::vector<std::string> header = {"run", "repeat"};
  for (const std::string& name : AxisNames(plan)) header.push_back(name);
  std::string text = absl::StrCat(
      absl::StrJoin(header, ","),
      ",status,records_per_second,goodput,seconds,records,steps,startup,"
      "elapsed,kills,recovery_p50_ms,recovery_max_ms,loss_pause_p50_ms,"
      "join_pause_p50_ms,save_p50_ms,time_to_target,last_metric,mean_workers,"
      "cpu_seconds,cpu_utilisation,load,ledger,ledger_records,makespan,"
      "slot_utilisation,reason\n");
  for (const Run& run : ListRuns(plan)) {
    const auto result = results.find(run.id);
    if (result == results.end()) continue;
    double goodput = 0;
    for (const Cell& cell : summary.cells) {
      if (cell.calm || cell.settings != run.settings) continue;
      const double baseline = Baseline(summary, cell, run.repeat);
      if (baseline > 0) {
        goodput = result->second.measured.records_per_second / baseline;
      }
    }
    absl::StrAppend(&text, Row(plan, result->second, goodput), "\n");
  }
  return text;
}

std::string ResultsJson(const Plan& plan, const Summary& summary,
                        const std::map<std::string, RunResult>& results) {
  Json json = {
      {"plan", plan.name},
      {"description", plan.description},
      {"seed", plan.seed},
      {"planned", summary.planned},
      {"done", summary.done},
      {"failed", summary.failed},
      {"ledgers", {{"checked", summary.ledgers}, {"exact", summary.exact}}},
      {"checkpoint_restart",
       {{"save", summary.cost.save},
        {"restart", summary.cost.restart},
        {"source", summary.cost_source}}}};
  json["cells"] = Json::array();
  for (const Cell& cell : summary.cells)
    json["cells"].push_back(CellJson(cell));
  json["runs"] = Json::array();
  for (const Run& run : ListRuns(plan)) {
    const auto result = results.find(run.id);
    if (result != results.end()) {
      json["runs"].push_back(ResultJson(result->second));
    }
  }
  return absl::StrCat(JsonText(json, 1), "\n");
}

}  // namespace elasticdl::experiment
