// Event log and ledger audit: fields, several files, many threads.
#include "event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "elasticdl/common/thread.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

using Json = nlohmann::json;

class FixedClock : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch(); }
  absl::Time WallNow() const override {
    return absl::FromUnixMicros(1700000000250000);
  }
};

std::vector<Json> ReadLines(const std::string& path) {
  std::vector<Json> lines;
  for (const auto& line :
       absl::StrSplit(*ReadFile(path), '\n', absl::SkipEmpty())) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

class EventLogTest : public ::testing::Test {
 protected:
  test::TempDir dir_;
  FixedClock clock_;
  const std::string path_ = dir_.Path("events.jsonl");
};

TEST_F(EventLogTest, WritesEveryEventWithItsFields) {
  auto log = EventLog::Open({path_}, clock_);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->JobStart("j", "train");
  (*log)->PodStarted("elasticdl-worker-j-0", PodType::kWorker, 0, 77);
  (*log)->PodStarted("elasticdl-worker-j-1", PodType::kWorker, 1, 78, 0, "why");
  (*log)->PodEnded("elasticdl-worker-j-0", 0, "signal 9 (SIGKILL)", false,
                   /*asked=*/false);
  (*log)->WorkerReady(1);
  (*log)->WorkerLost(1, "stream broken");
  (*log)->World(3, {1, 2}, "worker 0 lost", absl::Microseconds(1500));
  (*log)->Checkpoint(100, "/c/version-100", absl::Milliseconds(7));
  (*log)->CheckpointFailed(200, "/c/version-200",
                           absl::ResourceExhaustedError("disk full"));
  (*log)->Evaluation(100, {{"accuracy", 0.5}, {"auc", std::nan("")}},
                     /*records=*/10, absl::Milliseconds(20));
  (*log)->TaskQuarantined("f", 10, 20, 3, "worker crashed");
  (*log)->Scaled(2, 4);
  (*log)->JobEnd("succeeded", "the work is done", 0, 1000);
  (*log)->Evaluating(300, {0, 2});
  (*log)->Saving({});
  (*log)->Silent(PodType::kPs, 1, "has not answered for 5s");
  (*log)->Heard(PodType::kWorker, 2);

  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::vector<Json> lines = ReadLines(path_);
  ASSERT_EQ(lines.size(), 17u);
  EXPECT_EQ(lines[13]["workers"], Json({0, 2}));
  EXPECT_EQ(lines[13]["step"], 300);
  EXPECT_EQ(lines[14]["workers"], Json::array());
  EXPECT_EQ(lines[15]["type"], "ps");
  EXPECT_EQ(lines[15]["reason"], "has not answered for 5s");
  EXPECT_EQ(lines[16]["event"], "heard");
  EXPECT_EQ(lines[16]["id"], 2);
  EXPECT_EQ(lines[3]["asked"], false);
  for (const Json& line : lines) EXPECT_EQ(line["time"], 1700000000.25);
  EXPECT_EQ(lines[0]["event"], "job_start");
  EXPECT_EQ(lines[1]["pid"], 77);
  EXPECT_FALSE(lines[1].contains("replaces"));
  EXPECT_EQ(lines[2]["replaces"], 0);
  EXPECT_EQ(lines[3]["failure"], false);
  EXPECT_EQ(lines[4]["worker_id"], 1);
  EXPECT_EQ(lines[5]["reason"], "stream broken");
  EXPECT_EQ(lines[6]["members"], Json({1, 2}));
  EXPECT_EQ(lines[6]["pause_ms"], 1.5);
  EXPECT_EQ(lines[7]["ms"], 7);
  EXPECT_EQ(lines[8]["error"], "RESOURCE_EXHAUSTED: disk full");
  EXPECT_EQ(lines[9]["metrics"]["accuracy"], 0.5);
  EXPECT_TRUE(lines[9]["metrics"]["auc"].is_null());
  EXPECT_EQ(lines[10]["end"], 20);
  EXPECT_EQ(lines[11]["to"], 4);
  EXPECT_EQ(lines[12]["exit_code"], 0);
}

TEST_F(EventLogTest, TellsItsListenerWhatItWrites) {
  auto log = EventLog::Open({path_}, clock_);
  ASSERT_TRUE(log.ok()) << log.status();
  std::string told;
  (*log)->SetListener([&](const std::string& line) { told += line + "\n"; });
  (*log)->JobStart("j", "train", {"--num_workers=2"});
  (*log)->PodCreated("elasticdl-ps-j-0", PodType::kPs, 0, 0, "it ended");
  JobStatus status;
  status.step = 7;
  status.loss = std::nan("");
  status.ledger.in_flight = 64;
  (*log)->Progress(status);
  EXPECT_EQ(told, *ReadFile(path_));
  const std::vector<Json> lines = ReadLines(path_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["flags"], Json({"--num_workers=2"}));
  EXPECT_EQ(lines[1]["type"], "ps");
  EXPECT_EQ(lines[1]["replaces"], 0);
  EXPECT_EQ(lines[2]["step"], 7);
  EXPECT_EQ(lines[2]["records_in_flight"], 64);
  EXPECT_TRUE(lines[2]["loss"].is_null());
  EXPECT_FALSE(lines[2].contains("learning_rate"));
}

TEST_F(EventLogTest, StartsEachLineWithTimeAndEvent) {
  (*EventLog::Open({path_}, clock_))->WorkerReady(4);
  EXPECT_EQ(
      *ReadFile(path_),
      "{\"time\":1700000000.25,\"event\":\"worker_ready\",\"worker_id\":4}\n");
}

TEST_F(EventLogTest, WritesToAllFilesAndSkipsEmptyNames) {
  const std::string other = dir_.Path("other");
  (*EventLog::Open({path_, "", other}, clock_))->WorkerReady(1);
  EXPECT_EQ(*ReadFile(path_), *ReadFile(other));
  EXPECT_TRUE(EventLog::Open({"", ""}).ok());
  EXPECT_FALSE(EventLog::Open({dir_.Path("no/such/folder")}).ok());
}

TEST_F(EventLogTest, TextThatIsNotUtf8DoesNotBreakTheLine) {
  (*EventLog::Open({path_}, clock_))->WorkerLost(1, "bad \xff \n byte");
  EXPECT_EQ(ReadLines(path_).size(), 1u);
}

TEST_F(EventLogTest, LinesOfManyThreadsStayWhole) {
  auto log = EventLog::Open({path_});
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back("writer", [&] {
        for (int i = 0; i < 200; ++i) (*log)->WorkerLost(i, "a reason");
      });
    }
  }
  const std::vector<Json> lines = ReadLines(path_);
  EXPECT_EQ(lines.size(), 800u);
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_LE(lines[i - 1]["time"], lines[i]["time"]);
  }
}

TEST_F(EventLogTest, FullDiskDoesNotStopTheJob) {
  auto log = EventLog::Open({"/dev/full", path_});
  ASSERT_TRUE(log.ok());
  (*log)->WorkerReady(1);
  (*log)->WorkerReady(2);
  EXPECT_EQ(ReadLines(path_).size(), 2u);
}

TEST_F(EventLogTest, AuditWritesOneObjectPerRange) {
  auto audit = LedgerAudit::Open(path_);
  ASSERT_TRUE(audit.ok());
  ASSERT_TRUE((*audit)->Append({}).ok());
  ASSERT_TRUE(
      (*audit)
          ->Append({{0, "a \"b\"", 0, 64, 1, 2, 3}, {1, "c", 64, 128, 2, 2, 3}})
          .ok());
  ASSERT_TRUE((*audit)->Append({{1, "c", 128, 130, 2, 2, 4}}).ok());
  const std::vector<Json> lines = ReadLines(path_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], Json::parse(R"({"epoch":0,"shard":"a \"b\"","begin":0,
      "end":64,"worker_id":1,"generation":2,"step":3})"));
  EXPECT_EQ(lines[2]["end"], 130);
  EXPECT_FALSE((*LedgerAudit::Open("/dev/full"))->Append({{}}).ok());
  EXPECT_TRUE((*LedgerAudit::Open(""))->Append({{}}).ok());
}

TEST(CutAuditTest, CutsAndNeverExtends) {
  test::TempDir dir;
  const std::string path = dir.Path("audit");
  EXPECT_TRUE(CutAudit("", 100).ok());
  EXPECT_EQ(CutAudit(path, 100).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(WriteFileAtomic(path, "0123456789").ok());
  EXPECT_EQ(CutAudit(path, 11).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(*ReadFile(path), "0123456789");
  EXPECT_TRUE(CutAudit(path, 10).ok());
  EXPECT_TRUE(CutAudit(path, 4).ok());
  EXPECT_EQ(*ReadFile(path), "0123");
  EXPECT_TRUE(CutAudit("/dev/null", 4).ok());
}

}  // namespace
}  // namespace elasticdl::master
