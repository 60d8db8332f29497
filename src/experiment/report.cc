// The page of an experiment.
#include "elasticdl/experiment/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "chart.h"
#include "elasticdl/experiment/sharing.h"

namespace elasticdl::experiment {
namespace {

constexpr char kPageStyle[] = R"(
:root { color-scheme: light dark; --ground: #f4f6fa; --panel: #fff; --text: #18202f;
  --soft: #5d6b82; --line: #dfe4ee; --good: #1f9d66; --bad: #dc3545; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --panel: #151b24;
  --text: #e6ebf4; --soft: #93a0b6; --line: #283142; --good: #3cc48a; --bad: #f2555a; } }
* { box-sizing: border-box; }
html { background: var(--ground); }
body { margin: 0 auto; max-width: 1320px; padding: 28px 20px 40px; color: var(--text);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; font-weight: 680; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 30px 0 10px; font-weight: 650; }
p { margin: 0; }
.soft { color: var(--soft); }
.lead { max-width: 80ch; color: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0 0; }
dl div, figure, .table { background: var(--panel); border: 1px solid var(--line);
  border-radius: 14px; box-shadow: 0 1px 2px #10204010, 0 4px 16px #10204008; }
dl div { padding: 10px 14px; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; font-size: 21px; font-weight: 650; letter-spacing: -.01em; }
dd small { font-size: 12px; font-weight: 400; color: var(--soft); letter-spacing: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr));
  gap: 16px; margin-top: 18px; align-items: start; }
figure { margin: 0; padding: 10px 12px 12px; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 12px; padding: 4px 6px 0; }
.table { overflow-x: auto; padding: 4px 14px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: 6px 0 6px 16px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; font-size: 12px; }
td.text { text-align: left; white-space: normal; }
.ok { color: var(--good); } .bad { color: var(--bad); }
summary { cursor: pointer; margin: 26px 0 10px; font-size: 16px; font-weight: 650; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px;
  white-space: pre-wrap; font: 12.5px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
footer { color: var(--soft); font-size: 12px; margin-top: 26px; }
)";

std::string Tile(const std::string& name, const std::string& value,
                 const std::string& more) {
  return absl::StrCat("<div><dt>", Escaped(name), "</dt><dd>", Escaped(value),
                      " <small>", Escaped(more), "</small></dd></div>\n");
}

std::string WithInterval(const Estimate& estimate, double factor,
                         const std::string& unit) {
  if (estimate.count == 0) return "";
  const double half = (estimate.high - estimate.low) / 2;
  std::string text = Short(estimate.mean * factor);
  if (estimate.count > 1) absl::StrAppend(&text, " ± ", Short(half * factor));
  return absl::StrCat(text, unit);
}

std::string Spread(const std::vector<double>& values) {
  if (values.empty()) return "";
  return absl::StrCat(Short(Percentile(values, 50)), " / ",
                      Short(Percentile(values, 100)));
}

std::string Cells(const std::vector<std::string>& texts, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& text : texts) {
    absl::StrAppend(&row, "<", tag, ">", Escaped(text), "</", tag, ">");
  }
  return row + "</tr>\n";
}

std::string SharedTable(const Summary& summary) {
  std::string table =
      Cells({"cell", "runs", "makespan", "mean waiting", "slots in use"}, "th");
  for (const Cell& cell : summary.cells) {
    absl::StrAppend(
        &table, Cells({cell.LabelWithout({}), absl::StrCat(cell.runs.size()),
                       WithInterval(cell.makespan, 1, " s"),
                       WithInterval(cell.waiting, 1, " s"),
                       WithInterval(cell.utilisation, 100, " %")},
                      "td"));
  }
  return table;
}

std::string JobTable(const Summary& summary) {
  std::string table =
      Cells({"cell", "runs", "records/s", "goodput", "recovery ms (p50 / max)",
             "pause after a loss ms", "pause of joins ms", "save ms", "CPU"},
            "th");
  for (const Cell& cell : summary.cells) {
    const std::string label = cell.LabelWithout({});
    absl::StrAppend(
        &table,
        Cells({label.empty() ? "all" : label, absl::StrCat(cell.runs.size()),
               WithInterval(cell.throughput, 1, ""),
               WithInterval(cell.goodput, 100, " %"), Spread(cell.recovery_ms),
               Spread(cell.loss_pause_ms), Spread(cell.join_pause_ms),
               Spread(cell.save_ms),
               WithInterval(cell.cpu_utilisation, 100, " %")},
              "td"));
  }
  return table;
}

std::string RunTable(const Plan& plan,
                     const std::map<std::string, RunResult>& results) {
  std::string table = Cells({"run", "round", "cell", "began (UTC)", "load",
                             "records/s", "kills", "ledger", "result"},
                            "th");
  for (const Run& run : ListRuns(plan)) {
    const auto it = results.find(run.id);
    if (it == results.end()) continue;
    const RunResult& result = it->second;
    absl::StrAppend(
        &table,
        Cells({run.id, absl::StrCat(run.repeat + 1), run.Label(),
               absl::FormatTime(
                   "%Y-%m-%d %H:%M:%S",
                   absl::FromUnixSeconds(static_cast<int64_t>(result.began)),
                   absl::UTCTimeZone()),
               result.on_cluster ? "" : absl::StrFormat("%.1f", result.load),
               Short(result.measured.records_per_second),
               absl::StrCat(result.measured.kills), result.ledger,
               result.ok ? "ok" : absl::StrCat("failed: ", result.reason)},
              "td"));
  }
  return table;
}

bool AnyOnCluster(const Plan& plan,
                  const std::map<std::string, RunResult>& results) {
  for (const Run& run : ListRuns(plan)) {
    const auto it = results.find(run.id);
    if (it != results.end() && it->second.on_cluster) return true;
  }
  return false;
}

// What is different there, and what is not known.
std::string ClusterNotes(const Plan& plan,
                         const std::map<std::string, RunResult>& results) {
  if (!AnyOnCluster(plan, results)) return "";
  double least = 0, most = 0;
  for (const Run& run : ListRuns(plan)) {
    const auto it = results.find(run.id);
    if (it == results.end()) continue;
    least = std::min(least, it->second.clock_offset);
    most = std::max(most, it->second.clock_offset);
  }
  std::string notes = "<h2>On a cluster</h2>\n<p>";
  if (!plan.shared()) {
    notes +=
        "A kill is the deletion of a pod without grace, a preemption its "
        "ordinary deletion; recovery counts from the request to the API "
        "server.";
  } else if (DividerOf(plan.sharing, true) == Divider::kCluster) {
    notes +=
        "An elastic job asks for all its workers when it arrives, and the "
        "cluster's scheduler starts those that fit; the others wait as pending "
        "pods. A gang is submitted when all its workers fit.";
  } else {
    notes +=
        "The service is a number of slots: the experiment scales the elastic "
        "jobs to what it leaves.";
  }
  notes +=
      " Events and audit came through the log of the master, and a ledger "
      "counts as exact only if no line of it is missing. Not measured: CPU "
      "time of the pods, load of the nodes.";
  if (least < 0 || most > 0) {
    absl::StrAppendFormat(
        &notes,
        " The clock of the master differed from the one of this machine by "
        "%.1f s to %.1f s; times are corrected by that, to within a "
        "second.",
        least, most);
  }
  return notes + "</p>\n";
}

std::string Tiles(const Plan& plan, const Summary& summary,
                  const std::map<std::string, RunResult>& results) {
  std::vector<double> recovery, loads;
  int64_t kills = 0;
  for (const Cell& cell : summary.cells) {
    for (const RunResult* run : cell.runs) {
      kills += run->measured.kills;
      loads.push_back(run->load);
    }
    if (cell.peer != kElasticdl) continue;
    recovery.insert(recovery.end(), cell.recovery_ms.begin(),
                    cell.recovery_ms.end());
  }
  std::string tiles = "<dl>\n";
  absl::StrAppend(
      &tiles,
      Tile("Runs", absl::StrCat(summary.done - summary.failed),
           absl::StrCat("of ", summary.planned, " planned",
                        summary.failed > 0
                            ? absl::StrCat(", ", summary.failed, " failed")
                            : "")));
  if (summary.ledgers > 0) {
    absl::StrAppend(&tiles,
                    Tile("Ledgers exact", absl::StrCat(summary.exact),
                         absl::StrCat("of ", summary.ledgers, " checked")));
  }
  if (kills > 0) {
    absl::StrAppend(
        &tiles, Tile("Kills", absl::StrCat(kills),
                     AnyOnCluster(plan, results) ? "pods deleted without grace"
                                                 : "SIGKILL"));
  }
  if (!recovery.empty()) {
    absl::StrAppend(
        &tiles,
        Tile("Recovery of ElasticDL",
             absl::StrCat(Short(Percentile(recovery, 50)), " ms"), "median"));
  }
  if (plan.shared()) {
    absl::StrAppend(&tiles,
                    Tile("Slots", absl::StrCat(plan.sharing.slots),
                         absl::StrCat(plan.sharing.jobs.size(), " jobs")));
  }
  if (AnyOnCluster(plan, results)) {
    absl::StrAppend(&tiles,
                    Tile("Machine", "a cluster", "its load is not measured"));
  } else if (!results.empty()) {
    absl::StrAppend(
        &tiles,
        Tile("Machine", absl::StrCat(results.begin()->second.cores, " cores"),
             absl::StrCat("load before runs ", Short(Percentile(loads, 50)))));
  }
  return tiles + "</dl>\n";
}

}  // namespace

std::string ReportHtml(const Plan& plan, const Summary& summary,
                       const std::map<std::string, RunResult>& results) {
  std::string page = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>",
      Escaped(plan.name), " – ElasticDL experiment</title>\n<style>",
      kPageStyle, ChartStyle(), "</style></head>\n<body>\n<h1>",
      Escaped(plan.name), "</h1>\n<p class=\"lead\">",
      Escaped(plan.description), "</p>\n", Tiles(plan, summary, results),
      "<div class=\"charts\">\n");
  for (const NamedChart& chart : Charts(plan, summary)) {
    absl::StrAppend(&page, "<figure>", chart.svg, "<figcaption>",
                    Escaped(chart.note), "</figcaption></figure>\n");
  }
  absl::StrAppend(
      &page, "</div>\n<h2>Results</h2>\n<div class=\"table\"><table>\n",
      plan.shared() ? SharedTable(summary) : JobTable(summary),
      "</table></div>\n<details><summary>All runs</summary>\n"
      "<div class=\"table\"><table>\n",
      RunTable(plan, results), "</table></div></details>\n",
      ClusterNotes(plan, results), "<h2>Again</h2>\n",
      "<pre>elasticdl experiment run ", Escaped(plan.file), "</pre>\n",
      "<footer>Made by <code>elasticdl experiment</code>. Runs of a round are "
      "in random order (seed ",
      plan.seed,
      "), so that load on the machine affects all cells alike. Intervals: 95 "
      "%, Student's t.</footer>\n</body></html>\n");
  return page;
}

}  // namespace elasticdl::experiment
