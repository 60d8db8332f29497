// Which charts an experiment has.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "chart.h"
#include "elasticdl/experiment/report.h"

namespace elasticdl::experiment {
namespace {

constexpr char kInterval[] = "Means with 95 % confidence intervals.";

Point FromEstimate(double x, const Estimate& estimate) {
  Point point;
  point.x = x;
  point.y = estimate.mean;
  if (estimate.count > 1) {
    point.low = estimate.low;
    point.high = estimate.high;
  }
  return point;
}

Bar BarOf(const std::string& label, const Estimate& estimate, int color) {
  Bar bar;
  bar.label = label.empty() ? "all" : label;
  bar.value = estimate.mean;
  bar.color = color;
  if (estimate.count > 1) {
    bar.low = estimate.low;
    bar.high = estimate.high;
  }
  return bar;
}

Series& SeriesNamed(const std::string& name, std::vector<Series>* all) {
  for (Series& one : *all) {
    if (one.name == name) return one;
  }
  all->emplace_back();
  all->back().name = name;
  return all->back();
}

void SortPoints(std::vector<Series>* all) {
  for (Series& one : *all) {
    std::sort(one.points.begin(), one.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  }
}

// An axis whose values are all numbers, and more than one.
bool IsNumeric(const Axis& axis) {
  double value = 0;
  return axis.values.size() > 1 &&
         std::all_of(axis.values.begin(), axis.values.end(),
                     [&](const std::string& text) {
                       return absl::SimpleAtod(text, &value);
                     });
}

double Setting(const Cell& cell, const std::string& name) {
  double value = 0;
  const auto it = cell.settings.find(name);
  if (it == cell.settings.end() || !absl::SimpleAtod(it->second, &value)) {
    return 0;
  }
  return value;
}

// The cells that tell about throughput: undisturbed ones, if there are any.
std::vector<const Cell*> ThroughputCells(const Summary& summary) {
  std::vector<const Cell*> calm, all;
  for (const Cell& cell : summary.cells) {
    if (cell.runs.empty() || cell.throughput.mean <= 0) continue;
    if (cell.calm) calm.push_back(&cell);
    all.push_back(&cell);
  }
  return calm.empty() ? all : calm;
}

LineChart ThroughputChart(const Axis& axis,
                          const std::vector<const Cell*>& cells) {
  LineChart chart;
  chart.title = absl::StrCat("Throughput against ", axis.name);
  chart.x_label = axis.name;
  chart.y_label = "records per second";
  std::set<double> ticks;
  for (const Cell* cell : cells) {
    const double x = Setting(*cell, axis.name);
    ticks.insert(x);
    SeriesNamed(cell->LabelWithout({axis.name, "trace"}), &chart.series)
        .points.push_back(FromEstimate(x, cell->throughput));
  }
  if (ticks.size() <= 10) chart.x_ticks.assign(ticks.begin(), ticks.end());
  SortPoints(&chart.series);
  return chart;
}

// Throughput per worker relative to the smallest number of workers.
LineChart EfficiencyChart(const LineChart& throughput) {
  LineChart chart = throughput;
  chart.title = "Scaling efficiency";
  chart.y_label = "throughput per worker, relative";
  chart.percent = true;
  for (Series& series : chart.series) {
    if (series.points.empty()) continue;
    const Point base = series.points[0];
    for (Point& point : series.points) {
      const double ideal = base.y * point.x / base.x;
      if (ideal <= 0) continue;
      point.y /= ideal;
      point.low /= ideal;
      point.high /= ideal;
    }
  }
  return chart;
}

// What share of the values is at most x.
Series Distribution(const std::string& name, std::vector<double> values) {
  Series series;
  series.name = name;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Point point;
    point.x = std::max(values[i], 0.01);
    if (i == 0) series.points.push_back(point);
    point.y = static_cast<double>(i + 1) / count;
    series.points.push_back(point);
  }
  return series;
}

using Values = std::function<const std::vector<double>&(const Cell&)>;

LineChart DistributionChart(const std::string& title, const Summary& summary,
                            const Values& values) {
  LineChart chart;
  chart.title = title;
  chart.x_label = "milliseconds";
  chart.y_label = "share of events";
  chart.log_x = true;
  chart.percent = true;
  chart.steps = true;
  std::vector<std::pair<std::string, std::vector<double>>> all;
  for (const Cell& cell : summary.cells) {
    const std::vector<double>& more = values(cell);
    if (more.empty()) continue;
    const std::string name = cell.LabelWithout({"trace"});
    if (all.empty() || all.back().first != name) all.push_back({name, {}});
    auto& list = all.back().second;
    list.insert(list.end(), more.begin(), more.end());
  }
  for (auto& [name, list] : all) {
    const std::string label =
        absl::StrFormat("%s%s%d, median %s ms", name, name.empty() ? "" : ", ",
                        list.size(), Short(Percentile(list, 50)));
    chart.series.push_back(Distribution(label, std::move(list)));
  }
  return chart;
}

LineChart GoodputChart(const Summary& summary) {
  LineChart chart;
  chart.title = "Goodput against the time between failures";
  chart.x_label = "mean seconds between failures";
  chart.y_label = "throughput, relative to no failures";
  chart.log_x = true;
  chart.percent = true;
  std::set<double> ticks;
  for (const Cell& cell : summary.cells) {
    if (cell.mtbf <= 0 || cell.goodput.count == 0) continue;
    ticks.insert(cell.mtbf);
    SeriesNamed(cell.LabelWithout({"trace"}), &chart.series)
        .points.push_back(FromEstimate(cell.mtbf, cell.goodput));
  }
  SortPoints(&chart.series);
  if (ticks.empty()) return chart;
  chart.x_ticks.assign(ticks.begin(), ticks.end());
  if (summary.cost.save > 0 && summary.cost.restart > 0) {
    Series model;
    model.name =
        absl::StrFormat("checkpoint/restart at best (save %s s, restart %s s)",
                        Short(summary.cost.save), Short(summary.cost.restart));
    model.model = true;
    const double first = *ticks.begin() / 1.1;
    const double last = *ticks.rbegin() * 1.1;
    constexpr int kSteps = 60;
    for (int i = 0; i <= kSteps; ++i) {
      Point point;
      point.x = first * std::pow(last / first, i / double{kSteps});
      point.y = BestCheckpointGoodput(summary.cost, point.x);
      model.points.push_back(point);
    }
    chart.series.push_back(std::move(model));
  }
  return chart;
}

using EstimateOf = std::function<const Estimate&(const Cell&)>;

BarChart Bars(const std::string& title, const std::string& unit, bool percent,
              const Summary& summary, const EstimateOf& estimate) {
  BarChart chart;
  chart.title = title;
  chart.unit = unit;
  chart.percent = percent;
  std::vector<std::string> colors;
  for (const Cell& cell : summary.cells) {
    if (cell.runs.empty() || estimate(cell).count == 0) continue;
    // One colour for each way to train.
    const std::string kind = cell.peer + cell.policy;
    auto it = std::find(colors.begin(), colors.end(), kind);
    if (it == colors.end()) it = colors.insert(colors.end(), kind);
    chart.bars.push_back(BarOf(cell.LabelWithout({}), estimate(cell),
                               static_cast<int>(it - colors.begin())));
  }
  return chart;
}

void AddScaling(const Plan& plan, const Summary& summary,
                std::vector<NamedChart>* charts) {
  const std::vector<const Cell*> cells = ThroughputCells(summary);
  if (cells.empty()) return;
  bool numeric = false;
  for (const Axis& axis : plan.matrix) {
    if (!IsNumeric(axis)) continue;
    numeric = true;
    const LineChart chart = ThroughputChart(axis, cells);
    charts->push_back(
        {absl::StrCat("throughput-", axis.name), kInterval, Draw(chart)});
    if (axis.name != "workers") continue;
    charts->push_back({"efficiency",
                       "Records per second and worker, relative to the "
                       "smallest number of workers.",
                       Draw(EfficiencyChart(chart))});
  }
  if (numeric) return;
  BarChart bars;
  bars.title = "Throughput";
  bars.unit = "rec/s";
  for (const Cell* cell : cells) {
    bars.bars.push_back(
        BarOf(cell->LabelWithout({"trace"}), cell->throughput, 0));
  }
  charts->push_back({"throughput", kInterval, Draw(bars)});
}

void AddElasticity(const Summary& summary, std::vector<NamedChart>* charts) {
  const LineChart goodput = GoodputChart(summary);
  if (!goodput.series.empty()) {
    std::string note =
        absl::StrCat(kInterval,
                     " Goodput is the throughput with failures divided by that "
                     "of the same job without, in the same round.");
    if (summary.cost.save > 0) {
      absl::StrAppend(&note,
                      " Dashed: what checkpoints and restarts reach at "
                      "best (Daly 2006) with these times to save and "
                      "to restart (",
                      summary.cost_source, ").");
    }
    charts->push_back({"goodput", note, Draw(goodput)});
  }
  const LineChart recovery = DistributionChart(
      "Recovery: from SIGKILL to the next committed step", summary,
      [](const Cell& cell) -> const std::vector<double>& {
        return cell.recovery_ms;
      });
  if (!recovery.series.empty()) {
    charts->push_back({"recovery",
                       "Cumulative distribution over all kills; the time axis "
                       "is logarithmic.",
                       Draw(recovery)});
  }
  LineChart pauses = DistributionChart(
      "Pause of the members when others join or leave", summary,
      [](const Cell& cell) -> const std::vector<double>& {
        return cell.join_pause_ms;
      });
  if (!pauses.series.empty()) {
    charts->push_back({"join-pause",
                       "How long the members did not train, as rank 0 "
                       "measured it.",
                       Draw(pauses)});
  }
}

void AddSlots(const Plan& plan, const Summary& summary,
              std::vector<NamedChart>* charts) {
  double longest = 1;
  for (const Cell& cell : summary.cells) {
    if (cell.runs.empty()) continue;
    longest = std::max(longest, cell.runs[0]->shared.makespan);
  }
  for (const Cell& cell : summary.cells) {
    if (cell.runs.empty()) continue;
    SlotChart chart;
    chart.title = absl::StrCat("Slots over time: ", cell.LabelWithout({}));
    chart.slots = plan.sharing.slots;
    chart.seconds = longest * 1.02;
    for (const SharedJob& job : plan.sharing.jobs) {
      chart.jobs.push_back(job.name);
    }
    if (!plan.sharing.service.empty()) chart.jobs.push_back("service");
    chart.timeline = cell.runs[0]->shared.timeline;
    charts->push_back({absl::StrCat("slots-", cell.policy),
                       "The workers of each job's world; first round.",
                       Draw(chart)});
  }
}

void AddShared(const Plan& plan, const Summary& summary,
               std::vector<NamedChart>* charts) {
  AddSlots(plan, summary, charts);
  charts->push_back({"makespan",
                     "From the first arrival to the end of the last job.",
                     Draw(Bars("Makespan", "s", false, summary,
                               [](const Cell& cell) -> const Estimate& {
                                 return cell.makespan;
                               }))});
  charts->push_back({"waiting",
                     "From a job's arrival to its first step, mean over the "
                     "jobs.",
                     Draw(Bars("Waiting time", "s", false, summary,
                               [](const Cell& cell) -> const Estimate& {
                                 return cell.waiting;
                               }))});
  charts->push_back({"slot-utilisation",
                     "Share of the slots in use, over the makespan.",
                     Draw(Bars("Utilisation of the slots", "", true, summary,
                               [](const Cell& cell) -> const Estimate& {
                                 return cell.utilisation;
                               }))});
}

}  // namespace

std::vector<NamedChart> Charts(const Plan& plan, const Summary& summary) {
  std::vector<NamedChart> charts;
  const bool any =
      std::any_of(summary.cells.begin(), summary.cells.end(),
                  [](const Cell& cell) { return !cell.runs.empty(); });
  if (!any) return charts;
  if (plan.shared()) {
    AddShared(plan, summary, &charts);
    return charts;
  }
  AddScaling(plan, summary, &charts);
  AddElasticity(summary, &charts);
  const BarChart target = Bars(
      absl::StrFormat("Time to %s %s", plan.target_metric,
                      Short(plan.target_value)),
      "s", false, summary,
      [](const Cell& cell) -> const Estimate& { return cell.time_to_target; });
  if (!target.bars.empty()) {
    charts.push_back({"time-to-target",
                      "From the first step to the end of the first evaluation "
                      "that reached it.",
                      Draw(target)});
  }
  const BarChart cpu = Bars(
      "CPU utilisation", "", true, summary,
      [](const Cell& cell) -> const Estimate& { return cell.cpu_utilisation; });
  if (!cpu.bars.empty()) {
    charts.push_back({"cpu-utilisation",
                      "CPU time of all processes of a run, start and end "
                      "included, of all cores.",
                      Draw(cpu)});
  }
  return charts;
}

std::string ChartFile(const NamedChart& chart) { return SvgFile(chart.svg); }

}  // namespace elasticdl::experiment
