#include "elasticdl/trace/step_clock.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "elasticdl/common/thread.h"
#include "elasticdl/trace/clock_offset.h"
#include "elasticdl/trace/process_usage.h"

namespace elasticdl::trace {
namespace {

// Until the clock has moved: a time of 0 would prove nothing.
void Spin() {
  const int64_t until = NowNanoseconds() + 200000;
  while (NowNanoseconds() < until) {
  }
}

TEST(StepClockTest, EveryMomentBelongsToOneKind) {
  const int64_t begin = NowNanoseconds();
  StepClock clock;
  for (const Kind kind : {Kind::kDataWait, Kind::kForward, Kind::kBackward,
                          Kind::kCommunication, Kind::kOptimizer}) {
    clock.Enter(kind);
    Spin();
  }
  clock.CountStep(1, 64);
  clock.Enter(Kind::kIdle);
  Spin();
  const StepTimes times = clock.Take();
  const double whole = static_cast<double>(NowNanoseconds() - begin) * 1e-9;
  const double sum =
      std::accumulate(times.seconds.begin(), times.seconds.end(), 0.0);
  EXPECT_LE(sum, whole);
  EXPECT_GE(sum, 6 * 200e-6);
  for (const Kind kind : {Kind::kDataWait, Kind::kForward, Kind::kIdle}) {
    EXPECT_GE(times.seconds[static_cast<size_t>(kind)], 200e-6)
        << KindName(kind);
  }
  EXPECT_EQ(times.steps, 1);
  EXPECT_EQ(times.records, 64);
  EXPECT_EQ(times.step_durations.total(), 1);
  // Waiting for nothing is not a part of the step.
  EXPECT_LE(times.step_durations.seconds,
            sum - times.seconds[static_cast<size_t>(Kind::kIdle)] + 1e-9);
}

TEST(StepClockTest, TakeBeginsAnew) {
  StepClock clock;
  clock.Enter(Kind::kForward);
  Spin();
  EXPECT_GT(clock.Take().seconds[static_cast<size_t>(Kind::kForward)], 0);
  // What goes on is counted from there.
  Spin();
  const StepTimes times = clock.Take();
  EXPECT_GE(times.seconds[static_cast<size_t>(Kind::kForward)], 200e-6);
  EXPECT_EQ(times.steps, 0);
}

TEST(StepClockTest, RecordsSpansWithTheNumberOfTheStep) {
  Recorder recorder;
  StepClock clock;
  clock.SetRecorder(&recorder);
  clock.BeginAfter(41);
  clock.Enter(Kind::kForward);
  // A kind that goes on stays one span.
  clock.Enter(Kind::kForward);
  clock.Enter(Kind::kOther);
  clock.CountStep(42, 1);
  clock.Enter(Kind::kForward);
  clock.Enter(Kind::kIdle);
  const Recorder::Taken taken = recorder.Take();
  ASSERT_EQ(taken.spans.size(), 3u);
  EXPECT_EQ(taken.spans[0].kind, Kind::kIdle);
  EXPECT_EQ(taken.spans[1].kind, Kind::kForward);
  EXPECT_EQ(taken.spans[1].number, 42);
  EXPECT_EQ(taken.spans[2].number, 43);
  EXPECT_LE(taken.spans[1].end, taken.spans[2].begin);
  EXPECT_EQ(taken.dropped, 0);
}

TEST(StepClockTest, ScopesReturnToWhatWasBefore) {
  StepClock clock;
  clock.Enter(Kind::kBackward);
  {
    const ScopedKind copy(clock, Kind::kCheckpointCopy);
    EXPECT_EQ(clock.kind(), Kind::kCheckpointCopy);
  }
  EXPECT_EQ(clock.kind(), Kind::kBackward);
}

TEST(RecorderTest, MemoryIsBoundedAndLossesAreCounted) {
  Recorder recorder(10);
  for (int i = 0; i < 25; ++i) recorder.Add({Kind::kFeed, i, i + 1, 0});
  Recorder::Taken taken = recorder.Take();
  EXPECT_EQ(taken.spans.size(), 10u);
  EXPECT_EQ(taken.dropped, 15);
  recorder.Add({Kind::kFeed, 0, 1, 0});
  taken = recorder.Take();
  EXPECT_EQ(taken.spans.size(), 1u);
  EXPECT_EQ(taken.dropped, 0);
}

TEST(RecorderTest, ThreadsRecordTogether) {
  Recorder recorder(100000);
  std::vector<Thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back("recorder", [&] {
      for (int i = 0; i < 1000; ++i) {
        const ScopedSpan span(&recorder, Kind::kAllReduce, i);
      }
    });
  }
  size_t taken = 0;
  for (int i = 0; i < 100; ++i) taken += recorder.Take().spans.size();
  for (Thread& thread : threads) thread.Join();
  taken += recorder.Take().spans.size();
  EXPECT_EQ(taken, 4000u);
}

TEST(DurationHistogramTest, CountsInBucketsAndTakesOnce) {
  DurationHistogram histogram;
  histogram.Add(50'000);             // 0.05 ms
  histogram.Add(100'000);            // the bound belongs to its bucket
  histogram.Add(3'000'000'000);      // 3 s
  histogram.Add(1'000'000'000'000);  // beyond all
  const DurationCounts counts = histogram.Take();
  EXPECT_EQ(counts.counts[0], 2);
  EXPECT_EQ(counts.counts[14], 1);
  EXPECT_EQ(counts.counts[16], 1);
  EXPECT_EQ(counts.total(), 4);
  EXPECT_NEAR(counts.seconds, 1003.00015, 1e-6);
  EXPECT_EQ(histogram.Take().total(), 0);
}

TEST(ClockOffsetTest, WithoutAnEchoTheWallClockCounts) {
  ClockOffset offset;
  offset.Assume(/*now=*/1'000, /*wall=*/5'000);
  EXPECT_TRUE(offset.known());
  EXPECT_EQ(offset.offset(), 4'000);
  EXPECT_GT(offset.ErrorAt(1'000), 0);
  // An echo is better.
  offset.Add(/*sent=*/2'000, /*there=*/7'010, /*received=*/2'020);
  EXPECT_EQ(offset.offset(), 5'000);
  offset.Assume(/*now=*/3'000, /*wall=*/5'000);
  EXPECT_EQ(offset.offset(), 5'000);
}

TEST(ClockOffsetTest, TheQuickestEchoCounts) {
  ClockOffset offset;
  EXPECT_FALSE(offset.known());
  // The other clock is 1000 ahead; the way there took 10, the way back 30.
  offset.Add(100, 1110, 140);
  EXPECT_EQ(offset.offset(), 990);
  EXPECT_EQ(offset.ErrorAt(140), 20);
  // A slow one says less.
  offset.Add(200, 1500, 700);
  EXPECT_EQ(offset.offset(), 990);
  offset.Add(1000, 2002, 1004);
  EXPECT_EQ(offset.offset(), 1000);
  EXPECT_EQ(offset.ErrorAt(1004), 2);
  // Much later a slow one is better than nothing new: clocks drift.
  offset.Add(9'000'000, 9'001'100, 9'000'200);
  EXPECT_EQ(offset.offset(), 1000);
  // From the future: not an echo.
  offset.Add(500, 10, 400);
  EXPECT_EQ(offset.offset(), 1000);
}

TEST(ProcessUsageTest, ThisProcessUsesSomething) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.memory_bytes, 1 << 20);
  EXPECT_GE(usage.cpu_seconds, 0);
}

TEST(KindTest, NamesAreDistinct) {
  std::set<std::string> names, fields;
  for (size_t i = 0; i < kKinds; ++i) {
    names.insert(std::string(KindName(static_cast<Kind>(i))));
    fields.insert(std::string(KindField(static_cast<Kind>(i))));
  }
  EXPECT_EQ(names.size(), kKinds);
  EXPECT_EQ(fields.size(), kKinds);
}

}  // namespace
}  // namespace elasticdl::trace
