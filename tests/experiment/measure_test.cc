#include "elasticdl/experiment/measure.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two workers; one is killed at 112 and replaced.
constexpr char kLog[] =
    R"log({"time":100,"event":"job_start","job":"j"}
{"time":101,"event":"world","generation":1,"members":[0],"cause":"start","pause_ms":0}
{"time":101.5,"event":"first_step","generation":1,"step":1}
{"time":102,"event":"world","generation":2,"members":[0,1],"cause":"worker 1 joined","pause_ms":2.5}
{"time":102.5,"event":"first_step","generation":2,"step":9}
{"time":103,"event":"progress","step":20,"records_done":1000,"workers":2}
{"time":108,"event":"checkpoint","version":50,"path":"p","ms":40}
{"time":110,"event":"evaluation","step":60,"metrics":{"accuracy":0.9}}
{"time":112.05,"event":"world","generation":3,"members":[0],"cause":"worker 1 lost: signal 9","pause_ms":30}
{"time":112.08,"event":"first_step","generation":3,"step":70}
{"time":113,"event":"world","generation":4,"members":[0,2],"cause":"worker 2 joined","pause_ms":3.5}
{"time":120,"event":"evaluation","step":90,"metrics":{"accuracy":0.97}}
{"time":123,"event":"progress","step":100,"records_done":21000,"workers":2}
{"time":125,"event":"job_end","state":"succeeded"}
)log";

MeasureOptions Options() {
  MeasureOptions options;
  options.workers = 2;
  options.target_metric = "accuracy";
  options.target_value = 0.95;
  options.delivered = {{112, ActionKind::kKill, 1}};
  return options;
}

TEST(MeasureTest, ReadsWhatARunDid) {
  const Measured measured = Measure(kLog, Options());
  EXPECT_EQ(measured.state, "succeeded");
  EXPECT_DOUBLE_EQ(measured.startup, 2.5);
  EXPECT_DOUBLE_EQ(measured.elapsed, 25);
  EXPECT_DOUBLE_EQ(measured.seconds, 20);
  EXPECT_EQ(measured.records, 20000);
  EXPECT_DOUBLE_EQ(measured.records_per_second, 1000);
  ASSERT_EQ(measured.recovery_ms.size(), 1u);
  EXPECT_NEAR(measured.recovery_ms[0], 80, 0.01);
  EXPECT_THAT(measured.loss_pause_ms, ElementsAre(30));
  EXPECT_THAT(measured.join_pause_ms, ElementsAre(2.5, 3.5));
  EXPECT_THAT(measured.save_ms, ElementsAre(40));
  EXPECT_DOUBLE_EQ(measured.time_to_target, 120 - 101.5);
  EXPECT_DOUBLE_EQ(measured.last_metric, 0.97);
  EXPECT_EQ(measured.kills, 1);
  // 19.05 s with two, 0.95 s with one.
  EXPECT_NEAR(measured.mean_workers, (2 * 19.05 + 0.95) / 20, 1e-6);
}

TEST(MeasureTest, TimeWithoutProgressAtTheEndCounts) {
  MeasureOptions options = Options();
  options.end = 143;
  const Measured measured = Measure(kLog, options);
  EXPECT_DOUBLE_EQ(measured.seconds, 40);
  EXPECT_DOUBLE_EQ(measured.records_per_second, 500);
}

TEST(MeasureTest, WhatComesAfterTheEndDoesNotCount) {
  MeasureOptions options = Options();
  options.end = 111;
  const Measured measured = Measure(kLog, options);
  EXPECT_THAT(measured.loss_pause_ms, IsEmpty());
  EXPECT_EQ(measured.time_to_target, -1);
}

TEST(MeasureTest, DamagedLogsDoNotMatter) {
  const std::string log = kLog;
  for (size_t cut = 0; cut < log.size(); cut += 7) {
    const Measured measured = Measure(log.substr(0, cut), Options());
    EXPECT_GE(measured.seconds, 0);
    Measure(log.substr(cut), Options());
  }
}

std::string Range(int epoch, int begin, int end, int step) {
  return absl::StrCat(R"({"epoch":)", epoch, R"(,"shard":"s","begin":)", begin,
                      R"(,"end":)", end, R"(,"step":)", step, "}\n");
}

TEST(LedgerTest, ExactWhenEachPositionIsThereOnce) {
  const LedgerCheck check =
      CheckLedger(Range(0, 0, 10, 1) + Range(0, 20, 30, 2) +
                      Range(0, 10, 20, 3) + Range(1, 0, 30, 9),
                  true);
  EXPECT_TRUE(check.exact) << check.problem;
  EXPECT_EQ(check.records, 60);
  EXPECT_EQ(check.complete_epochs, 2);
}

TEST(LedgerTest, FindsWhatIsThereTwiceOrMissing) {
  EXPECT_THAT(
      CheckLedger(Range(0, 0, 10, 1) + Range(0, 9, 20, 2), false).problem,
      HasSubstr("positions 9 to 10"));
  const std::string missing = Range(0, 0, 10, 1) + Range(1, 0, 9, 2);
  EXPECT_THAT(CheckLedger(missing, true).problem,
              HasSubstr("epoch 2 has 9 records, another one 10"));
  EXPECT_TRUE(CheckLedger(missing, false).exact);
  EXPECT_THAT(CheckLedger("{\n", false).problem, HasSubstr("line 1"));
}

TEST(LedgerTest, ARollbackMakesLaterStepsVoid) {
  const std::string audit =
      Range(0, 0, 10, 1) + Range(0, 10, 20, 5) + "{\"cut_back\":3}\n";
  EXPECT_EQ(CheckLedger(audit, false).records, 10);
  EXPECT_TRUE(CheckLedger(audit + Range(0, 10, 20, 4), true).exact);
}

TEST(MeasureTest, WorldsAreATimeline) {
  const auto points = WorkersOverTime(kLog, "j", 100);
  ASSERT_EQ(points.size(), 5u);
  EXPECT_EQ(points[0].workers, 1);
  EXPECT_DOUBLE_EQ(points[1].at, 2);
  EXPECT_EQ(points[4].workers, 0);
}

}  // namespace
}  // namespace elasticdl::experiment
