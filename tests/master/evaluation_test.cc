#include "evaluation.h"

#include <gmock/gmock.h>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TaskManagerOptions EvaluatedJob() {
  TaskManagerOptions options = SmallJob();
  options.validation_shards = {MakeShard("v", 0, 100)};
  return options;
}

v1::MetricSums Metric(const std::string& name, const std::string& kind,
                      std::vector<double> sums) {
  v1::MetricSums metric;
  metric.set_name(name);
  metric.set_kind(kind);
  for (const double sum : sums) metric.add_sums(sum);
  return metric;
}

class EvaluationTest : public ::testing::Test {
 protected:
  explicit EvaluationTest() : tasks_(MakeTasks(EvaluatedJob())) {}

  v1::TaskDone DoneTask(int64_t worker, std::vector<v1::MetricSums> metrics) {
    const GrantResult grant = tasks_.Grant(At(0), worker);
    EXPECT_EQ(grant.task->type(), v1::EVALUATION);
    v1::TaskDone done;
    done.set_task_id(grant.task->task_id());
    for (auto& metric : metrics) *done.add_metrics() = metric;
    return done;
  }

  TaskManager tasks_;
};

TEST_F(EvaluationTest, AddsUpTheSumsOfAllTasks) {
  EvaluationService service({}, tasks_, At(0));
  EXPECT_FALSE(service.TakeResult(At(0)).has_value());
  ASSERT_TRUE(service.Start(At(10), 4).ok());
  for (int64_t worker : {1, 2, 1}) {
    EXPECT_FALSE(service.TakeResult(At(11)).has_value());
    const v1::TaskDone done =
        DoneTask(worker, {Metric("accuracy", "mean", {10.0 * worker, 40}),
                          Metric("auc", "auc", {0, 2, 3, 1})});
    ASSERT_TRUE(service.Report(At(11), worker, done).ok());
    // A repeated report does not count twice.
    ASSERT_TRUE(service.Report(At(11), worker, done).ok());
  }
  const auto result = service.TakeResult(At(13));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->status.ok());
  EXPECT_EQ(result->version, 4);
  EXPECT_EQ(result->records, 100);
  EXPECT_EQ(result->skipped_records, 0);
  EXPECT_EQ(result->duration, absl::Seconds(3));
  // 6 positives in the upper bin; 9 negatives below them, 3 beside them.
  EXPECT_THAT(result->metrics,
              ElementsAre(Pair("accuracy", 40.0 / 120),
                          Pair("auc", (9 * 6 + 3 * 3) / (6.0 * 12))));
  EXPECT_FALSE(service.TakeResult(At(13)).has_value());
  EXPECT_FALSE(service.running());
}

TEST_F(EvaluationTest, ALostWorkersReportsStayAndItsOpenTasksAreRedone) {
  EvaluationService service({}, tasks_, At(0));
  ASSERT_TRUE(service.Start(At(0), 1).ok());
  const auto sums = Metric("n", "sum", {1});
  ASSERT_TRUE(service.Report(At(0), 1, DoneTask(1, {sums})).ok());
  const v1::TaskDone open = DoneTask(1, {sums});
  tasks_.WorkerLost(At(0), 1, WorkerLoss::kCrashed);
  EXPECT_EQ(service.Report(At(0), 1, open).code(), kStale);
  ASSERT_TRUE(service.Report(At(0), 2, DoneTask(2, {sums})).ok());
  ASSERT_TRUE(service.Report(At(0), 2, DoneTask(2, {sums})).ok());
  EXPECT_EQ(service.TakeResult(At(0))->metrics.at("n"), 3);
}

TEST_F(EvaluationTest, RefusesMetricsThatDoNotAgree) {
  EvaluationService service({}, tasks_, At(0));
  ASSERT_TRUE(service.Start(At(0), 1).ok());
  const auto good = Metric("a", "mean", {1, 1});
  const std::vector<std::vector<v1::MetricSums>> wrong_alone = {
      {Metric("a", "nonsense", {1})}, {Metric("a", "mean", {1})}, {good, good}};
  v1::TaskDone first = DoneTask(1, {});
  const auto report = [&service](v1::TaskDone done,
                                 const std::vector<v1::MetricSums>& metrics) {
    for (const auto& metric : metrics) *done.add_metrics() = metric;
    return service.Report(At(0), 1, done);
  };
  for (const auto& metrics : wrong_alone) {
    EXPECT_EQ(report(first, metrics).code(),
              absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(report(first, {good}).ok());
  const std::vector<std::vector<v1::MetricSums>> wrong = {
      {},
      {Metric("b", "mean", {1, 1})},
      {good, Metric("b", "mean", {1, 1})},
      {Metric("a", "sqrt_mean", {1, 1})}};
  v1::TaskDone second = DoneTask(1, {});
  for (const auto& metrics : wrong) {
    const absl::Status status = report(second, metrics);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("metric '"));
  }
  // The task stays open: a right report is still taken.
  EXPECT_TRUE(report(second, {good}).ok());
}

TEST_F(EvaluationTest, ReportOfAnotherKindOfTaskIsRefused) {
  EvaluationService service({}, tasks_, At(0));
  v1::TaskDone done;
  done.set_task_id(tasks_.Grant(At(0), 1).task->task_id());
  EXPECT_EQ(service.Report(At(0), 1, done).code(), kStale);
}

TEST_F(EvaluationTest, DueAtExactStepsOnce) {
  EvaluationOptions options;
  options.evaluation_steps = 10;
  EvaluationService service(options, tasks_, At(0));
  EXPECT_FALSE(service.DueAtStep(0));
  EXPECT_FALSE(service.DueAtStep(9));
  EXPECT_TRUE(service.DueAtStep(10));
  EXPECT_FALSE(service.DueAtStep(11));
  ASSERT_TRUE(service.Start(At(0), 10).ok());
  EXPECT_EQ(service.Start(At(0), 20).code(), kStale);
  EXPECT_FALSE(service.DueAtStep(20));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(service.Report(At(0), 1, DoneTask(1, {})).ok());
  }
  ASSERT_TRUE(service.TakeResult(At(0)).has_value());
  EXPECT_FALSE(service.DueAtStep(10));
  EXPECT_TRUE(service.DueAtStep(20));
  EXPECT_EQ(service.NextDueTime(), absl::InfiniteFuture());
}

TEST_F(EvaluationTest, DueByTimeAfterDelayThenThrottled) {
  EvaluationOptions options;
  options.start_delay = absl::Seconds(50);
  options.throttle = absl::Seconds(20);
  EvaluationService service(options, tasks_, At(100));
  EXPECT_EQ(service.NextDueTime(), At(150));
  EXPECT_FALSE(service.DueByTime(At(149)));
  EXPECT_TRUE(service.DueByTime(At(150)));
  ASSERT_TRUE(service.Start(At(151), 7).ok());
  EXPECT_FALSE(service.DueByTime(At(1000)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(service.Report(At(180), 1, DoneTask(1, {})).ok());
  }
  ASSERT_TRUE(service.TakeResult(At(180)).has_value());
  EXPECT_FALSE(service.DueByTime(At(199)));
  EXPECT_TRUE(service.DueByTime(At(200)));
}

TEST_F(EvaluationTest, DueAtTheEndUnlessTheLastStepWasEvaluated) {
  TaskManagerOptions options = EvaluatedJob();
  options.final_evaluation = true;
  for (const bool evaluated : {false, true}) {
    tasks_ = MakeTasks(options);
    EvaluationService service({}, tasks_, At(0));
    if (evaluated) {
      ASSERT_TRUE(service.Start(At(0), 3).ok());
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(service.Report(At(0), 1, DoneTask(1, {})).ok());
      }
      ASSERT_TRUE(service.TakeResult(At(0)).has_value());
    }
    EXPECT_FALSE(service.DueAtEnd());
    ASSERT_TRUE(tasks_.SetStep(3).ok());
    tasks_.StopTraining("test");
    EXPECT_EQ(service.DueAtEnd(), !evaluated);
    EXPECT_EQ(tasks_.Finished(), evaluated);
  }
}

TEST_F(EvaluationTest, SetAsideRecordsShowInTheResult) {
  EvaluationService service({}, tasks_, At(0));
  ASSERT_TRUE(service.Start(At(0), 1).ok());
  const auto sums = Metric("n", "sum", {1});
  ASSERT_TRUE(service.Report(At(0), 1, DoneTask(1, {sums})).ok());
  ASSERT_TRUE(service.Report(At(0), 1, DoneTask(1, {sums})).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(service.TakeResult(At(0)).has_value());
    DoneTask(1, {});
    tasks_.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "x");
  }
  const auto result = service.TakeResult(At(0));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->status.ok());
  EXPECT_EQ(result->records, 80);
  EXPECT_EQ(result->skipped_records, 20);
  EXPECT_EQ(result->metrics.at("n"), 2);
}

TEST_F(EvaluationTest, NothingEvaluatedIsAnError) {
  TaskManagerOptions options = EvaluatedJob();
  options.validation_shards = {MakeShard("v", 0, 5)};
  options.task_max_failures = 1;
  tasks_ = MakeTasks(options);
  EvaluationService service({}, tasks_, At(0));
  ASSERT_TRUE(service.Start(At(0), 1).ok());
  DoneTask(1, {});
  tasks_.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "x");
  const auto result = service.TakeResult(At(0));
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->status.ok());
}

TEST_F(EvaluationTest, CutBackVoidsALaterVersion) {
  EvaluationOptions options;
  options.evaluation_steps = 10;
  EvaluationService service(options, tasks_, At(0));
  const v1::Ledger start = tasks_.Snapshot();
  ASSERT_TRUE(tasks_.SetStep(10).ok());
  ASSERT_TRUE(service.Start(At(0), 10).ok());
  const v1::TaskDone done = DoneTask(1, {Metric("n", "sum", {1})});
  ASSERT_TRUE(tasks_.CutBack(At(0), start).ok());
  service.CutBack(At(0), 0);
  EXPECT_FALSE(service.running());
  EXPECT_EQ(service.Report(At(0), 1, done).code(), kStale);
  EXPECT_TRUE(service.DueAtStep(10));
  ASSERT_TRUE(service.Start(At(0), 10).ok());
}

}  // namespace
}  // namespace elasticdl::master
