#include "elasticdl/experiment/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/experiment/results.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

Plan MakePlan() {
  Plan plan;
  plan.name = "<b>&";
  plan.description = "\"<script>alert(1)</script>\"";
  plan.file = "p.yaml";
  plan.repeats = 2;
  plan.seconds = 10;
  plan.matrix = {{"workers", {"1", "2", "10"}},
                 {"peer", {kElasticdl, kTorchrun}}};
  plan.traces.resize(2);
  plan.traces[0].name = "calm";
  plan.traces[1].name = "kills";
  plan.traces[1].mtbf = 5;
  return plan;
}

RunResult ResultOf(const experiment::Run& run) {
  RunResult result;
  result.id = run.id;
  result.repeat = run.repeat;
  result.settings = run.settings;
  result.peer = run.peer;
  result.workers = run.workers;
  result.calm = run.calm;
  result.mtbf = run.mtbf;
  result.ok = true;
  result.ledger = "exact";
  result.measured.records_per_second =
      100.0 * static_cast<double>(run.workers) * (run.calm ? 1 : 0.9);
  if (!run.calm) {
    result.measured.recovery_ms = {10, 20};
    result.measured.kills = 2;
    result.measured.save_ms = {100};
  }
  return result;
}

std::map<std::string, RunResult> AllResults(const Plan& plan) {
  std::map<std::string, RunResult> results;
  for (const experiment::Run& run : ListRuns(plan))
    results[run.id] = ResultOf(run);
  return results;
}

TEST(ResultsTest, ALineIsReadAsItWasWritten) {
  for (const experiment::Run& run : ListRuns(MakePlan())) {
    RunResult result = ResultOf(run);
    result.reason = "caf\xc3\xa9, \"x\"\n";
    const auto again = ParseResultLine(ResultLine(result));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(ResultLine(*again), ResultLine(result));
  }
}

TEST(ResultsTest, SharedResultsToo) {
  RunResult result;
  result.id = "1";
  result.policy = kGang;
  result.shared.makespan = 5;
  result.shared.waiting = {{"a", 1}};
  result.shared.timeline = {{1, "a", 4}};
  const auto again = ParseResultLine(ResultLine(result));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(ResultLine(*again), ResultLine(result));
}

TEST(ResultsTest, AnIncompleteLastLineIsPassedOver) {
  RunResult result;
  result.id = "a";
  const std::string line = ResultLine(result);
  const auto results =
      ParseResults(absl::StrCat(line, "\n", line.substr(0, 20)));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(*results, SizeIs(1));
  const auto damaged = ParseResults(absl::StrCat("{\n", line, "\n"));
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("line 1"));
}

TEST(SummaryTest, CellsInOrderWithGoodput) {
  const Plan plan = MakePlan();
  const auto results = AllResults(plan);
  const Summary summary = Summarize(plan, results);
  EXPECT_EQ(summary.planned, 24);
  EXPECT_EQ(summary.done, 24);
  EXPECT_EQ(summary.exact, 24);
  ASSERT_THAT(summary.cells, SizeIs(12));
  EXPECT_EQ(summary.cells[0].workers, 1);
  EXPECT_EQ(summary.cells[2].workers, 10);
  for (const Cell& cell : summary.cells) {
    EXPECT_EQ(cell.throughput.count, 2);
    EXPECT_EQ(cell.goodput.count, cell.calm ? 0 : 2);
    if (!cell.calm) {
      EXPECT_DOUBLE_EQ(cell.goodput.mean, 0.9);
    }
  }
  // From the peer that saves and restarts.
  EXPECT_DOUBLE_EQ(summary.cost.save, 0.1);
  EXPECT_DOUBLE_EQ(summary.cost.restart, 0.015);
}

TEST(SummaryTest, FailedAndForeignRunsDoNotCount) {
  const Plan plan = MakePlan();
  auto results = AllResults(plan);
  results.begin()->second.ok = false;
  results["foreign"] = RunResult();
  const Summary summary = Summarize(plan, results);
  EXPECT_EQ(summary.done, 24);
  EXPECT_EQ(summary.failed, 1);
}

TEST(SummaryTest, TheTableHasARowPerRunAndAllColumns) {
  const Plan plan = MakePlan();
  const auto results = AllResults(plan);
  const std::string csv = ResultsCsv(plan, Summarize(plan, results), results);
  const std::vector<std::string> lines =
      absl::StrSplit(csv, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(25));
  const auto columns = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  for (const std::string& line : lines) {
    EXPECT_EQ(columns(line), columns(lines[0])) << line;
  }
}

TEST(ReportTest, HasTheChartsAndEscapesEverything) {
  const Plan plan = MakePlan();
  const auto results = AllResults(plan);
  const Summary summary = Summarize(plan, results);
  std::vector<std::string> names;
  for (const NamedChart& chart : Charts(plan, summary)) {
    names.push_back(chart.name);
    EXPECT_THAT(chart.svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")),
                                 HasSubstr("</svg>")));
    EXPECT_THAT(ChartFile(chart), HasSubstr("<style>"));
  }
  for (const char* name : {"throughput-workers", "efficiency", "goodput",
                           "recovery", "cpu-utilisation"}) {
    EXPECT_THAT(names, Contains(name));
  }
  const std::string page = ReportHtml(plan, summary, results);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script>")), HasSubstr("&lt;b&gt;"),
                          HasSubstr("checkpoint/restart at best"),
                          HasSubstr("median 15 ms")));
}

TEST(ReportTest, APlanWithoutResultsHasAPage) {
  const Plan plan = MakePlan();
  const std::string page = ReportHtml(plan, Summarize(plan, {}), {});
  EXPECT_THAT(page, HasSubstr("of 24 planned"));
}

TEST(ReportTest, SharedJobsHaveSlotsOverTime) {
  Plan plan;
  plan.name = "two";
  plan.matrix = {{"policy", {kElastic, kGang}}};
  plan.traces.resize(1);
  plan.sharing.slots = 6;
  plan.sharing.jobs.resize(1);
  plan.sharing.jobs[0].name = "a<";
  std::map<std::string, RunResult> results;
  for (const experiment::Run& run : ListRuns(plan)) {
    RunResult& result = results[run.id];
    result.id = run.id;
    result.settings = run.settings;
    result.policy = run.policy;
    result.ok = true;
    result.shared.makespan = 30;
    result.shared.utilisation = 0.5;
    result.shared.timeline = {{0, "a<", 4}, {20, "a<", 0}};
  }
  const auto charts = Charts(plan, Summarize(plan, results));
  ASSERT_THAT(charts, SizeIs(5));
  EXPECT_THAT(charts[0].svg, AllOf(HasSubstr("a&lt;"), HasSubstr("<rect")));
  for (auto& [id, result] : results) result.on_cluster = true;
  EXPECT_THAT(ReportHtml(plan, Summarize(plan, results), results),
              HasSubstr("the cluster's scheduler starts those that fit"));
  plan.sharing.service = {{0, 1}};
  for (const experiment::Run& run : ListRuns(plan)) {
    results[run.id].on_cluster = true;
  }
  EXPECT_THAT(ReportHtml(plan, Summarize(plan, results), results),
              HasSubstr("The service is a number of slots"));
}

TEST(ReportTest, SaysWhatIsNotKnownOfACluster) {
  Plan plan = MakePlan();
  std::map<std::string, RunResult> results = AllResults(plan);
  EXPECT_THAT(ReportHtml(plan, Summarize(plan, results), results),
              AllOf(HasSubstr("CPU utilisation"), HasSubstr("SIGKILL"),
                    Not(HasSubstr("On a cluster"))));
  for (auto& [id, result] : results) {
    result.on_cluster = true;
    result.cpu_seconds = -1;
    result.load = -1;
    result.clock_offset = -3.25;
    const auto again = ParseResultLine(ResultLine(result));
    ASSERT_TRUE(again.ok()) << again.status();
    result = *again;
  }
  const std::string page = ReportHtml(plan, Summarize(plan, results), results);
  EXPECT_THAT(page, AllOf(HasSubstr("On a cluster"),
                          HasSubstr("Not measured: CPU time"),
                          HasSubstr("by -3.2 s to 0.0 s"),
                          HasSubstr("pods deleted without grace"),
                          Not(HasSubstr("CPU utilisation"))));
}

}  // namespace
}  // namespace elasticdl::experiment
