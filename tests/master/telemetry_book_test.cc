#include "telemetry_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace elasticdl::master {
namespace {

using trace::Kind;

const absl::Time kNow = absl::FromUnixSeconds(100);

// One second of a worker with so many steps and this much of its time in
// forward and communication.
v1::Telemetry Second(int64_t steps, double forward, double communication) {
  v1::Telemetry telemetry;
  telemetry.set_seconds(1);
  telemetry.set_cpu_seconds(0.5);
  telemetry.set_memory_bytes(1000);
  telemetry.set_steps(steps);
  telemetry.set_records(steps * 64);
  for (size_t i = 0; i < trace::kTrainingKinds; ++i) {
    telemetry.add_phase_seconds(0);
  }
  telemetry.set_phase_seconds(static_cast<int>(Kind::kForward), forward);
  telemetry.set_phase_seconds(static_cast<int>(Kind::kCommunication),
                              communication);
  telemetry.set_phase_seconds(static_cast<int>(Kind::kIdle), 7);
  telemetry.mutable_step_durations()->add_counts(steps);
  telemetry.mutable_step_durations()->set_seconds(forward + communication);
  return telemetry;
}

TEST(TelemetryBookTest, KnowsAWorker) {
  TelemetryBook book;
  EXPECT_EQ(book.Find({false, 3}), nullptr);
  book.Add(kNow, {false, 3}, Second(10, 0.6, 0.4));
  const PodUsage* usage = book.Find({false, 3});
  ASSERT_NE(usage, nullptr);
  EXPECT_EQ(usage->memory_bytes, 1000);
  EXPECT_DOUBLE_EQ(usage->cpu_cores, 0.5);
  EXPECT_DOUBLE_EQ(usage->records_per_s, 640);
  EXPECT_DOUBLE_EQ(usage->step_seconds, 0.1);
  EXPECT_DOUBLE_EQ(usage->own_seconds, 0.06);
  EXPECT_EQ(book.Find({true, 3}), nullptr);
  book.Remove({false, 3});
  EXPECT_EQ(book.Find({false, 3}), nullptr);
}

TEST(TelemetryBookTest, TheBreakdownIsOfWhoTrains) {
  TelemetryBook book;
  EXPECT_FALSE(book.Breakdown(kNow).has_value());
  book.Add(kNow, {false, 0}, Second(10, 0.6, 0.4));
  book.Add(kNow, {false, 1}, Second(10, 0.8, 0.2));
  book.Add(kNow, {false, 2}, Second(0, 0, 0));
  const auto mean = book.Breakdown(kNow);
  ASSERT_TRUE(mean.has_value());
  EXPECT_EQ(mean->steps, 20);
  EXPECT_DOUBLE_EQ(mean->seconds[static_cast<size_t>(Kind::kForward)], 0.07);
  EXPECT_DOUBLE_EQ(mean->total, 0.1);
  // Nobody has said anything for long.
  EXPECT_FALSE(book.Breakdown(kNow + absl::Seconds(10)).has_value());
  EXPECT_TRUE(book.WholeJob().has_value());
}

TEST(TelemetryBookTest, NamesTheWorkerThatOthersWaitFor) {
  TelemetryBook book;
  book.Add(kNow, {false, 0}, Second(10, 0.5, 0.5));
  EXPECT_FALSE(book.SlowestWorker(kNow).has_value()) << "alone";
  book.Add(kNow, {false, 1}, Second(10, 0.52, 0.48));
  EXPECT_FALSE(book.SlowestWorker(kNow).has_value()) << "about equal";
  book.Add(kNow, {false, 4}, Second(10, 0.9, 0.1));
  const auto slowest = book.SlowestWorker(kNow);
  ASSERT_TRUE(slowest.has_value());
  EXPECT_EQ(slowest->worker_id, 4);
  EXPECT_DOUBLE_EQ(slowest->own_seconds, 0.09);
  EXPECT_DOUBLE_EQ(slowest->median_seconds, 0.052);
}

TEST(TelemetryBookTest, TotalsOnlyGrow) {
  TelemetryBook book;
  book.Add(kNow, {false, 0}, Second(10, 0.6, 0.4));
  book.Remove({false, 0});
  book.Add(kNow, {false, 1}, Second(5, 0.1, 0.1));
  EXPECT_EQ(book.totals().steps.total(), 15);
  EXPECT_DOUBLE_EQ(
      book.totals().phase_seconds[static_cast<size_t>(Kind::kForward)], 0.7);
  book.AddPause(absl::Milliseconds(20));
  EXPECT_EQ(book.totals().pauses.total(), 1);
}

TEST(TelemetryBookTest, RatesOfServersComeFromDifferences) {
  TelemetryBook book;
  v1::Telemetry telemetry;
  telemetry.set_seconds(2);
  telemetry.set_rows(7);
  telemetry.set_model_bytes(400);
  telemetry.set_pulls(100);
  telemetry.set_pushes(50);
  book.Add(kNow, {true, 0}, telemetry);
  telemetry.set_pulls(140);
  telemetry.set_pushes(60);
  book.Add(kNow, {true, 0}, telemetry);
  EXPECT_DOUBLE_EQ(book.Find({true, 0})->pulls_per_s, 20);
  EXPECT_DOUBLE_EQ(book.Find({true, 0})->pushes_per_s, 5);
  // It was started again.
  telemetry.set_pulls(3);
  book.Add(kNow, {true, 0}, telemetry);
  EXPECT_DOUBLE_EQ(book.Find({true, 0})->pulls_per_s, 0);
  EXPECT_EQ(book.Find({true, 0})->rows, 7);
}

TEST(TelemetryBookTest, AnyNumbersAreBorne) {
  TelemetryBook book;
  v1::Telemetry telemetry = Second(-5, std::nan(""), -1);
  telemetry.set_seconds(std::numeric_limits<double>::infinity());
  telemetry.set_cpu_seconds(std::nan(""));
  for (int i = 0; i < 100; ++i) {
    telemetry.add_phase_seconds(1e300);
    telemetry.mutable_step_durations()->add_counts(-1);
  }
  book.Add(kNow, {false, 0}, telemetry);
  EXPECT_FALSE(book.Breakdown(kNow).has_value());
  EXPECT_TRUE(std::isfinite(book.Find({false, 0})->cpu_cores));
  EXPECT_EQ(book.totals().steps.total(), 0);
  v1::Telemetry empty;
  book.Add(kNow, {false, 1}, empty);
  EXPECT_EQ(book.Find({false, 1})->step_seconds, 0);
}

TEST(TelemetryBookTest, SilentPodsAreForgotten) {
  TelemetryBook book;
  for (int i = 0; i < 1000; ++i) {
    book.Add(kNow + absl::Minutes(i), {false, i}, Second(1, 1, 1));
  }
  EXPECT_EQ(book.Find({false, 10}), nullptr);
  EXPECT_NE(book.Find({false, 999}), nullptr);
}

}  // namespace
}  // namespace elasticdl::master
