// The file of --timeline and what `elasticdl timeline summary` says about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/file.h"
#include "elasticdl/trace/timeline_file.h"
#include "elasticdl/trace/timeline_summary.h"
#include "support/temp_dir.h"

namespace elasticdl::trace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int64_t kMs = 1000000;

class TimelineTest : public ::testing::Test {
 protected:
  // Two workers; the clock of the second is an hour behind. Worker 1 is 3 ms
  // late in each of `steps` steps.
  void WriteSteps(TimelineFile& file, int steps) {
    const int64_t behind = int64_t{3600} * 1000 * kMs;
    for (int step = 1; step <= steps; ++step) {
      const int64_t t = step * 10 * kMs;
      ASSERT_TRUE(
          file.Add(0,
                   {{Kind::kForward, t, t + kMs, step},
                    {Kind::kBackward, t + kMs, t + 2 * kMs, step},
                    {Kind::kCommunication, t + 2 * kMs, t + 6 * kMs, step},
                    {Kind::kAllReduce, t + 2 * kMs, t + 6 * kMs, 0},
                    {Kind::kOptimizer, t + 6 * kMs, t + 7 * kMs, step}},
                   0, 0)
              .ok());
      const int64_t u = t - behind;
      ASSERT_TRUE(
          file.Add(1,
                   {{Kind::kForward, u, u + 4 * kMs, step},
                    {Kind::kBackward, u + 4 * kMs, u + 5 * kMs, step},
                    {Kind::kCommunication, u + 5 * kMs, u + 6 * kMs, step},
                    {Kind::kAllReduce, u + 5 * kMs, u + 6 * kMs, 0},
                    {Kind::kOptimizer, u + 6 * kMs, u + 7 * kMs, step}},
                   behind, step == 2 ? 5 : 0)
              .ok());
    }
  }
  absl::StatusOr<TimelineSummary> Summarize(const std::string& text) {
    std::istringstream in(text);
    return SummarizeTimeline(in, "t.json");
  }

  test::TempDir dir_;
  const std::string path_ = dir_.path() + "/timeline.json";
};

TEST_F(TimelineTest, TheFileIsAListOfTraceEvents) {
  auto file = TimelineFile::Open(path_, "a \"b\" </script>");
  ASSERT_TRUE(file.ok()) << file.status();
  WriteSteps(**file, 3);
  ASSERT_TRUE((*file)->Mark("world 1", 5 * kMs, "worker 1 joined").ok());
  ASSERT_TRUE((*file)->Finish().ok());
  const Json events = Json::parse(*ReadFile(path_));
  ASSERT_TRUE(events.is_array());
  int spans = 0;
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    ++spans;
    // The clocks are brought together.
    EXPECT_GE(event["ts"].get<double>(), 10000);
    EXPECT_LT(event["ts"].get<double>(), 50000);
    EXPECT_GT(event["dur"].get<double>(), 0);
    EXPECT_TRUE(event["pid"] == 2 || event["pid"] == 3);
  }
  EXPECT_EQ(spans, 3 * 10);
  EXPECT_EQ(events[0]["args"]["name"], "master of a \"b\" </script>");
}

TEST_F(TimelineTest, TheSummarySaysForWhomTheOthersWaited) {
  auto file = TimelineFile::Open(path_, "job");
  ASSERT_TRUE(file.ok());
  WriteSteps(**file, 20);
  ASSERT_TRUE((*file)->Finish().ok());
  const auto summary = Summarize(*ReadFile(path_));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->complete);
  EXPECT_EQ(summary->shared_steps, 20);
  EXPECT_NEAR(summary->spread_seconds, 20 * 0.003, 1e-9);
  const auto& slow = summary->workers.at(1);
  EXPECT_EQ(slow.last, 20);
  EXPECT_NEAR(slow.waited_for, 20 * 0.003, 1e-9);
  EXPECT_EQ(slow.steps, 20);
  EXPECT_EQ(slow.dropped, 5);
  EXPECT_NEAR(slow.seconds.at("forward"), 20 * 0.004, 1e-9);
  EXPECT_EQ(summary->workers.at(0).last, 0);
  EXPECT_NEAR(summary->workers.at(0).beside.at("all-reduce"), 20 * 0.004, 1e-9);
  const std::string text = DescribeTimeline(*summary);
  EXPECT_THAT(text, HasSubstr("the others waited longest for worker 1\n"));
  EXPECT_THAT(text, HasSubstr("  kind of work         seconds    share    "
                              "ms/step\n"));
  EXPECT_THAT(text, HasSubstr("  forward                0.080"));
}

TEST_F(TimelineTest, AFileWithoutItsEndIsRead) {
  auto file = TimelineFile::Open(path_, "job");
  ASSERT_TRUE(file.ok());
  WriteSteps(**file, 2);
  // The job was killed in the middle of a line.
  std::string text = *ReadFile(path_);
  text.resize(text.size() - 20);
  const auto summary = Summarize(text);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_FALSE(summary->complete);
  EXPECT_EQ(summary->shared_steps, 2);
  EXPECT_THAT(DescribeTimeline(*summary), HasSubstr("not complete"));
}

TEST_F(TimelineTest, ARestartedMasterContinuesTheFile) {
  {
    auto file = TimelineFile::Open(path_, "job");
    ASSERT_TRUE(file.ok());
    WriteSteps(**file, 2);
  }
  // Killed in the middle of a line.
  std::string text = *ReadFile(path_);
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(text.size() - 20)), 0);
  auto file =
      TimelineFile::Open(path_, "job", TimelineFile::Existing::kContinue);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Mark("world 2", 50 * kMs, "restart").ok());
  ASSERT_TRUE((*file)->Finish().ok());
  text = *ReadFile(path_);
  EXPECT_TRUE(Json::parse(text).is_array());
  const auto summary = Summarize(text);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_TRUE(summary->complete);
  EXPECT_EQ(summary->shared_steps, 2);
  // A second restart after the end: it is cut off and written again.
  file = TimelineFile::Open(path_, "job", TimelineFile::Existing::kContinue);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_EQ(*ReadFile(path_), text);
}

TEST_F(TimelineTest, AFileOfAnotherKindIsNotContinued) {
  ASSERT_TRUE(WriteFileAtomic(path_, "not a timeline").ok());
  auto file =
      TimelineFile::Open(path_, "job", TimelineFile::Existing::kContinue);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_TRUE(Json::parse(*ReadFile(path_)).is_array());
}

TEST_F(TimelineTest, BadFilesAreNamedWithTheLine) {
  const auto message = [&](const std::string& text) {
    const auto summary = Summarize(text);
    return summary.ok() ? "" : std::string(summary.status().message());
  };
  EXPECT_THAT(message("hello\n"), HasSubstr("t.json:1: not a timeline"));
  EXPECT_THAT(message(""), HasSubstr("t.json: empty"));
  EXPECT_THAT(message("[\n{\"ph\":\"M\"},\n{}\n"), HasSubstr("t.json:2"));
  EXPECT_THAT(message("[\n12,\n{}\n"),
              HasSubstr("t.json:2: not a trace event"));
  EXPECT_THAT(message("[\n{\"ph\":\"X\",\"pid\":7},\n{}\n"),
              HasSubstr("t.json:2: a span of a worker without a name"));
}

TEST_F(TimelineTest, AFullFileStaysReadable) {
  auto file =
      TimelineFile::Open(path_, "job", TimelineFile::Existing::kReplace, 2000);
  ASSERT_TRUE(file.ok());
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = (*file)->Add(0, {{Kind::kForward, i, i + 1, i}}, 0, 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*file)->full());
  EXPECT_TRUE((*file)->Add(0, {{Kind::kForward, 1, 2, 1}}, 0, 0).ok());
  ASSERT_TRUE((*file)->Finish().ok());
  const auto summary = Summarize(*ReadFile(path_));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_FALSE(summary->complete);
  EXPECT_TRUE(Json::parse(*ReadFile(path_)).is_array());
}

TEST_F(TimelineTest, WithoutAPathNothingIsWritten) {
  auto file = TimelineFile::Open("", "job");
  ASSERT_TRUE(file.ok());
  WriteSteps(**file, 1);
  EXPECT_TRUE((*file)->Finish().ok());
  EXPECT_FALSE(TimelineFile::Open(dir_.path() + "/no/such", "job").ok());
}

}  // namespace
}  // namespace elasticdl::trace
