// Progress: rendering as a pure function, drawing into a pipe.
#include "progress_display.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "elasticdl/common/file.h"

namespace elasticdl::master {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

Progress Half() {
  Progress progress;
  progress.epoch = 2;
  progress.num_epochs = 3;
  progress.step = 488;
  progress.records_done = 50;
  progress.records_total = 100;
  progress.records_per_s = 12440;
  progress.loss = 0.12345;
  progress.workers = 1;
  progress.target_workers = 2;
  progress.generation = 3;
  return progress;
}

TEST(RenderProgressTest, ShowsEverything) {
  EXPECT_EQ(RenderProgress(Half(), 0, true),
            "epoch 2/3 [==========>         ]  50% step 488 12.4k rec/s "
            "loss 0.1235 workers 1/2 gen 3 ETA 0:00");
  EXPECT_EQ(RenderProgress(Half(), 0, false),
            "epoch 2/3  50% step 488 12.4k rec/s loss 0.1235 workers 1/2 gen 3 "
            "ETA 0:00");
}

TEST(RenderProgressTest, LeavesOutWhatIsNotKnown) {
  Progress progress;
  progress.num_epochs = 0;
  progress.target_workers = 2;
  EXPECT_EQ(RenderProgress(progress, 0, true),
            "epoch 1 step 0 0.0 rec/s workers 0/2");
  progress.phase = "evaluate";
  EXPECT_EQ(RenderProgress(progress, 0, true),
            "evaluate 0.0 rec/s workers 0/2");
}

TEST(RenderProgressTest, SaysWhatGoesOnInsteadOfASpeedOfNothing) {
  Progress progress = Half();
  progress.activity = "starting workers";
  EXPECT_EQ(RenderProgress(progress, 0, false),
            "epoch 2/3  50% step 488 (starting workers) workers 1/2 gen 3");
}

TEST(RenderProgressTest, ATerminalShowsHowLongItTakes) {
  Progress progress = Half();
  progress.activity = "compiling";
  progress.activity_time = absl::Seconds(7);
  EXPECT_THAT(RenderProgress(progress, 0, true),
              HasSubstr("(compiling, 0:07)"));
  EXPECT_THAT(RenderProgress(progress, 0, false), HasSubstr("(compiling)"));
}

TEST(RenderProgressTest, WhatGoesOnIsWorthMoreThanTheBar) {
  Progress progress = Half();
  progress.activity = "compiling or loading the model in 2 workers";
  progress.activity_time = absl::Seconds(12);
  EXPECT_EQ(RenderProgress(progress, 79, true),
            "epoch 2/3  50% step 488 (compiling or loading the model in 2 "
            "workers, 0:12)");
  EXPECT_THAT(RenderProgress(progress, 120, true), HasSubstr("[====="));
  progress.activity.clear();
  EXPECT_THAT(RenderProgress(progress, 50, true), HasSubstr("[====="));
}

TEST(RenderProgressTest, ProgramsGetJson) {
  Progress progress = Half();
  progress.activity = "a \"b\"";
  const std::string text = ProgressToJson(progress);
  EXPECT_THAT(text, HasSubstr("\"step\":488"));
  EXPECT_THAT(text, HasSubstr("\"activity\":\"a \\\"b\\\"\""));
}

TEST(RenderProgressTest, FitsAnyWidth) {
  for (int columns = 10; columns < 120; ++columns) {
    EXPECT_LE(RenderProgress(Half(), columns, true).size(),
              static_cast<size_t>(columns));
  }
}

TEST(RenderProgressTest, HundredPercentOnlyWhenDone) {
  Progress progress = Half();
  progress.records_done = 99999;
  progress.records_total = 100000;
  EXPECT_THAT(RenderProgress(progress, 0, true), HasSubstr(" 99% "));
  progress.records_done = 100000;
  EXPECT_THAT(RenderProgress(progress, 0, true),
              HasSubstr("[====================] 100% "));
}

TEST(RenderProgressTest, NumbersAndDurations) {
  EXPECT_EQ(ShortNumber(0), "0.0");
  EXPECT_EQ(ShortNumber(0.04), "0.04");
  EXPECT_EQ(ShortNumber(0.25), "0.2");
  EXPECT_EQ(ShortNumber(950.4), "950");
  EXPECT_EQ(ShortNumber(999960), "1.0M");
  EXPECT_EQ(ShortNumber(3.14e6), "3.1M");
  EXPECT_EQ(ShortDuration(absl::Seconds(7)), "0:07");
  EXPECT_EQ(ShortDuration(absl::Seconds(754)), "12:34");
  EXPECT_EQ(ShortDuration(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(ShortDuration(absl::InfiniteDuration()), "?");
}

class ProgressDisplayTest : public ::testing::Test {
 protected:
  ProgressDisplayTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_NONBLOCK), 0);
    read_.Reset(ends[0]);
    write_.Reset(ends[1]);
  }
  ProgressDisplay::Options Options(ProgressDisplay::Mode mode) const {
    ProgressDisplay::Options options;
    options.fd = write_.get();
    options.mode = mode;
    return options;
  }
  // What has been written since the last call.
  std::string Written() {
    char buffer[4096];
    const ssize_t n = read(read_.get(), buffer, sizeof(buffer));
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }

  Fd read_;
  Fd write_;
};

TEST_F(ProgressDisplayTest, WhatGoesOnIsSaidOnce) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kPlain));
  Progress progress = Half();
  progress.activity = "starting workers";
  display.Update(progress, At(0));
  EXPECT_THAT(Written(), HasSubstr("(starting workers)"));
  display.Update(progress, At(10));
  EXPECT_EQ(Written(), "");
  progress.activity = "connecting 2 workers";
  display.Update(progress, At(20));
  EXPECT_THAT(Written(), HasSubstr("(connecting 2 workers)"));
}

TEST_F(ProgressDisplayTest, EveryLineForProgramsIsAnObject) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kJson));
  display.Update(Half(), At(0));
  EXPECT_EQ(Written(), ProgressToJson(Half()) + "\n");
  display.Message("worker 0 is lost", At(1));
  EXPECT_EQ(Written(), "{\"message\":\"worker 0 is lost\"}\n");
  display.Finish(At(2));
  EXPECT_EQ(Written(), ProgressToJson(Half()) + "\n");
}

TEST_F(ProgressDisplayTest, PlainLinesComeEveryInterval) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kPlain));
  display.Update(Half(), At(0));
  EXPECT_EQ(Written(), RenderProgress(Half(), 0, false) + "\n");
  display.Update(Half(), At(5));
  EXPECT_EQ(Written(), "");
  EXPECT_EQ(display.next_wake(), At(10));
  display.Tick(At(10));
  EXPECT_THAT(Written(), HasSubstr("step 488"));
  EXPECT_EQ(display.next_wake(), absl::InfiniteFuture());
  display.Message("worker 0 lost: signal 9", At(11));
  EXPECT_EQ(Written(), "worker 0 lost: signal 9\n");
}

TEST_F(ProgressDisplayTest, LiveLineIsRedrawnAtMostTenTimesASecond) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kLive));
  int draws = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    display.Update(Half(), At(ms / 1000.0));
    if (!Written().empty()) ++draws;
  }
  EXPECT_EQ(draws, 10);
}

TEST_F(ProgressDisplayTest, MessagesGoAboveTheLiveLine) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kLive));
  display.Update(Half(), At(0));
  const std::string line = Written();
  EXPECT_THAT(line, HasSubstr("\r\x1b[Kepoch 2/3"));
  display.Message("checkpoint saved\x1b[2J\n", At(0.01));
  EXPECT_EQ(Written(), "\r\x1b[Kcheckpoint saved [2J\n" + line);
}

TEST_F(ProgressDisplayTest, FinishLeavesTheLastLine) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kLive));
  display.Update(Half(), At(0));
  Written();
  Progress done = Half();
  done.step = 999;
  display.Update(done, At(0.01));
  EXPECT_EQ(Written(), "");
  display.Finish(At(0.02));
  const std::string last = Written();
  EXPECT_THAT(last, HasSubstr("step 999"));
  EXPECT_THAT(last, EndsWith("\n"));
  display.Finish(At(0.03));
  display.Update(Half(), At(9));
  EXPECT_EQ(Written(), "");
}

TEST_F(ProgressDisplayTest, NoLastLineBeforeTheFirstRecord) {
  Progress begun;
  begun.activity = "starting workers";
  for (const auto mode :
       {ProgressDisplay::Mode::kPlain, ProgressDisplay::Mode::kLive}) {
    ProgressDisplay display(Options(mode));
    display.Update(begun, At(0));
    EXPECT_THAT(Written(), HasSubstr("(starting workers)"));
    display.Update(Progress(), At(0.01));
    Written();
    display.Finish(At(1));
    EXPECT_EQ(Written(),
              mode == ProgressDisplay::Mode::kLive ? "\r\x1b[K" : "");
  }
}

TEST_F(ProgressDisplayTest, NoneShowsMessagesOnly) {
  ProgressDisplay display(Options(ProgressDisplay::Mode::kNone));
  display.Update(Half(), At(0));
  display.Tick(At(100));
  EXPECT_EQ(Written(), "");
  display.Message("hello", At(1));
  EXPECT_EQ(Written(), "hello\n");
}

TEST_F(ProgressDisplayTest, SurvivesAReaderThatWentAway) {
  signal(SIGPIPE, SIG_IGN);
  ProgressDisplay display(Options(ProgressDisplay::Mode::kPlain));
  read_.Reset();
  display.Update(Half(), At(0));
  display.Message("x", At(1));
}

TEST_F(ProgressDisplayTest, LiveOnlyOnARealTerminal) {
  EXPECT_EQ(ProgressDisplay::DetectMode(write_.get(), "xterm"),
            ProgressDisplay::Mode::kPlain);
  const Fd terminal(posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_TRUE(terminal.valid());
  EXPECT_EQ(ProgressDisplay::DetectMode(terminal.get(), "xterm"),
            ProgressDisplay::Mode::kLive);
  EXPECT_EQ(ProgressDisplay::DetectMode(terminal.get(), "dumb"),
            ProgressDisplay::Mode::kPlain);
}

}  // namespace
}  // namespace elasticdl::master
