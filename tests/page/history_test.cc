#include "elasticdl/page/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace elasticdl::page {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

class HistoryTest : public ::testing::Test {
 protected:
  void Add(double time, const std::string& event, const std::string& fields) {
    const absl::Status status = history_.Add(
        absl::StrFormat("{\"time\":%.6f,\"event\":\"%s\"%s%s}", time, event,
                        fields.empty() ? "" : ",", fields));
    ASSERT_TRUE(status.ok()) << status;
  }
  void Start(double time, int id, int replaces = -1) {
    const std::string pod = absl::StrCat("\"pod\":\"elasticdl-worker-j-", id,
                                         "\",\"type\":\"worker\",\"id\":", id);
    Add(time, "pod_created",
        absl::StrCat(pod, ",\"reason\":\"wanted\"",
                     replaces < 0 ? "" : ",\"replaces\":",
                     replaces < 0 ? "" : absl::StrCat(replaces)));
    Add(time + 0.1, "pod_started", absl::StrCat(pod, ",\"pid\":7"));
  }
  void Ready(double time, int id) {
    Add(time, "worker_ready", absl::StrCat("\"worker_id\":", id));
  }
  void World(double time, int generation, const std::vector<int>& members,
             const std::string& cause, double pause_ms = 1) {
    Add(time, "world",
        absl::StrCat("\"generation\":", generation, ",\"members\":[",
                     absl::StrJoin(members, ","), "],\"cause\":\"", cause,
                     "\",\"pause_ms\":", pause_ms));
  }
  void Kill(double time, int id) {
    Add(time, "worker_lost",
        absl::StrCat("\"worker_id\":", id,
                     ",\"reason\":\"signal 9 (SIGKILL)\""));
    Add(time, "pod_ended",
        absl::StrCat("\"pod\":\"elasticdl-worker-j-", id, "\",\"id\":", id,
                     ",\"reason\":\"signal 9 (SIGKILL)\",\"failure\":false"));
  }
  std::vector<Span> SpansOf(int64_t member) {
    std::vector<Span> spans;
    for (const Span& span : history_.Since(0).spans) {
      if (span.member == member && !span.server) spans.push_back(span);
    }
    return spans;
  }

  History history_;
};

TEST_F(HistoryTest, TheModelIsToldOnceAndWithEverything) {
  Start(100, 0);
  const uint64_t before = history_.cursor();
  EXPECT_EQ(history_.Since(0).model, "");
  Add(101, "model",
      R"("trained":7,"optimizer":"SGD","num_tensors":1,"x":1,)"
      R"("tensors":[{"name":"w","layer":"Linear","shape":[7],"count":7}])");
  EXPECT_EQ(history_.Since(before).model,
            R"({"optimizer":"SGD","num_tensors":1,"trained":7,"tensors":)"
            R"([{"name":"w","layer":"Linear","count":7,"shape":[7]}]})");
  EXPECT_EQ(history_.Since(history_.cursor()).model, "");
  EXPECT_EQ(history_.Since(0).model, history_.model());
  const Json update = Json::parse(ChangesToJson(history_.Since(0), ""));
  EXPECT_EQ(update.at("model").at("trained"), 7);
  // The list of events has the totals only.
  EXPECT_FALSE(update.at("events").back().contains("tensors"));
  EXPECT_EQ(update.at("events").back().at("trained"), 7);
}

TEST_F(HistoryTest, AModelOfALogFromElsewhereIsBounded) {
  std::vector<std::string> tensors(
      5000, absl::StrCat("{\"name\":\"", std::string(9000, 'n'),
                         "\",\"shape\":[", std::string(18, '1'),
                         ",{},\"a\",1.5", std::string(2000, ' '), "]}"));
  tensors.push_back("5");
  Add(1, "model",
      absl::StrCat("\"trained\":\"x\",\"tensors\":[",
                   absl::StrJoin(tensors, ","), "]"));
  EXPECT_LT(history_.model().size(), 300000u);
  const Json model = Json::parse(history_.model());
  EXPECT_THAT(model.at("tensors"), SizeIs(History::kMaxTensors));
  EXPECT_FALSE(model.contains("trained"));
  Add(2, "model", "\"tensors\":7");
  EXPECT_EQ(history_.model(), R"({"tensors":[]})");
}

TEST_F(HistoryTest, AWorkerStartsJoinsTrainsAndIsLost) {
  Start(100, 0);
  Ready(103, 0);
  World(104, 1, {0}, "start", 0);
  Kill(110, 0);
  const std::vector<Span> spans = SpansOf(0);
  ASSERT_THAT(spans, SizeIs(3));
  EXPECT_EQ(spans[0].state, LaneState::kStarting);
  EXPECT_EQ(spans[0].begin, 100);
  EXPECT_EQ(spans[0].end, 103);
  EXPECT_EQ(spans[1].state, LaneState::kJoining);
  EXPECT_EQ(spans[1].end, 104);
  EXPECT_EQ(spans[2].state, LaneState::kTraining);
  EXPECT_EQ(spans[2].end, 110);
  EXPECT_EQ(spans[2].ended, LaneEnd::kLost);
  EXPECT_EQ(spans[2].reason, "signal 9 (SIGKILL)");
  const Totals totals = history_.Since(0).totals;
  EXPECT_EQ(totals.lost, 1);
  EXPECT_EQ(totals.left, 0);
  EXPECT_EQ(totals.joined, 1);
}

TEST_F(HistoryTest, WhoReplacesSomebodyTakesItsRow) {
  for (int id : {0, 1, 2}) Start(100, id);
  World(101, 1, {0, 1, 2}, "start");
  Kill(105, 1);
  Kill(106, 0);
  Start(107, 3, /*replaces=*/0);
  Start(108, 4, /*replaces=*/1);
  EXPECT_EQ(SpansOf(3)[0].row, SpansOf(0)[0].row);
  EXPECT_EQ(SpansOf(4)[0].row, SpansOf(1)[0].row);
  // One that replaces nobody gets a row that is free, or a new one.
  Start(109, 5);
  EXPECT_EQ(SpansOf(5)[0].row, 3);
  Kill(110, 2);
  Start(111, 6);
  EXPECT_EQ(SpansOf(6)[0].row, SpansOf(2)[0].row);
}

TEST_F(HistoryTest, OrderlyLeavesAreNoLosses) {
  Start(1, 0);
  World(2, 1, {0}, "start");
  Add(3, "worker_lost", R"~("worker_id":0,"reason":"left (SIGTERM)")~");
  Add(4, "pod_ended",
      R"("pod":"elasticdl-worker-j-0","id":0,"reason":"exit code 0",)"
      R"("failure":false)");
  EXPECT_EQ(SpansOf(0).back().ended, LaneEnd::kLeft);
  EXPECT_EQ(history_.Since(0).totals.lost, 0);
}

// In the words of Kubernetes, without and with what the master knows.
TEST_F(HistoryTest, WhatNobodyAskedForIsALoss) {
  int id = 0;
  for (const char* reason :
       {"Preempted, exit code 137", "Evicted: the node is low on memory",
        "Deleted", "exit code 137", "signal 9 (SIGKILL)",
        "signal 9 (SIGKILL), deleted because: it hangs"}) {
    for (const char* asked : {"", ",\"asked\":false", ",\"asked\":true"}) {
      for (const bool told_before : {false, true}) {
        Start(1, ++id);
        if (told_before) {
          Add(2, "worker_lost",
              absl::StrCat("\"worker_id\":", id, ",\"reason\":\"", reason,
                           "\""));
        }
        Add(2, "pod_ended",
            absl::StrCat("\"pod\":\"elasticdl-worker-j\",\"id\":", id,
                         ",\"reason\":\"", reason, "\",\"failure\":false",
                         asked));
        const bool lost = !absl::StrContains(asked, "true");
        EXPECT_EQ(SpansOf(id).back().ended,
                  lost ? LaneEnd::kLost : LaneEnd::kLeft)
            << reason << asked << told_before;
        EXPECT_EQ(SpansOf(id).back().lost, lost ? 1 : 0);
      }
    }
  }
  EXPECT_EQ(history_.Since(0).totals.lost, 24);
  EXPECT_EQ(history_.Since(0).totals.left, 12);
}

TEST_F(HistoryTest, AFailureIsKnownLaterThanTheEndOfTheStream) {
  Start(1, 0);
  Add(3, "worker_lost", R"("worker_id":0,"reason":"stream closed")");
  Add(4, "pod_ended",
      R"("pod":"elasticdl-worker-j-0","id":0,"reason":"exit code 3",)"
      R"("failure":true)");
  EXPECT_EQ(SpansOf(0).back().ended, LaneEnd::kLost);
  EXPECT_EQ(history_.Since(0).totals.lost, 1);
  EXPECT_EQ(history_.Since(0).totals.left, 0);
}

TEST_F(HistoryTest, ServersKeepTheirRowsAndWorkersNeedNoWorld) {
  const std::string server = R"("pod":"elasticdl-ps-j-0","type":"ps","id":0)";
  Add(1, "pod_started", server + ",\"pid\":3");
  Start(1, 0);
  Ready(2, 0);
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kTraining);
  Add(3, "pod_ended",
      R"~("pod":"elasticdl-ps-j-0","id":0,"reason":"signal 9 (SIGKILL)",)~"
      R"("failure":false)");
  Add(4, "pod_started",
      R"("pod":"elasticdl-ps-j-0-r1","type":"ps","id":0,"pid":4)");
  std::vector<Span> spans;
  for (const Span& span : history_.Since(0).spans) {
    if (span.server) spans.push_back(span);
  }
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].row, spans[1].row);
  EXPECT_EQ(spans[0].ended, LaneEnd::kLost);
  EXPECT_FALSE(spans[1].end.has_value());
  EXPECT_EQ(spans[1].state, LaneState::kServing);
}

TEST_F(HistoryTest, WorkersThatEvaluateNeedNoWorld) {
  Add(1, "job_start", R"("job":"j","command":"evaluate")");
  Start(1, 0);
  Ready(2, 0);
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kWorking);
}

TEST_F(HistoryTest, EvaluatingAndSavingComeOnTopOfTraining) {
  for (int id : {0, 1}) Start(100, id);
  World(102, 1, {0, 1}, "start");
  Add(110, "evaluating", R"("step":5,"workers":[0])");
  Add(110.1, "evaluating", R"("step":5,"workers":[0,1])");
  Add(111, "saving", R"("workers":[0])");
  Add(112, "evaluating", R"("step":5,"workers":[])");
  Add(113, "saving", R"("workers":[])");
  std::vector<std::string> states;
  for (const Span& span : SpansOf(0)) {
    states.push_back(absl::StrCat(LaneStateName(span.state), " ", span.begin,
                                  "-", span.end.value_or(0)));
    EXPECT_EQ(span.ended, LaneEnd::kNone);
  }
  EXPECT_THAT(states, ElementsAre("starting 100-102", "training 102-110",
                                  "evaluating 110-111", "saving 111-113",
                                  "training 113-0"));
  EXPECT_THAT(SpansOf(1), SizeIs(4));
  EXPECT_EQ(SpansOf(1)[2].begin, 110.1);
  // Nobody has joined by that, and the list of events does not have it.
  EXPECT_EQ(history_.Since(0).totals.joined, 2);
  for (const EventLine& event : history_.Since(0).events) {
    EXPECT_FALSE(absl::StrContains(event.json, "evaluating"));
  }
}

// It may be lost while it evaluates, or a new master may know nothing of it.
TEST_F(HistoryTest, WhatComesOnTopEndsWithTheWorkerAndWithTheMaster) {
  for (int id : {0, 1}) Start(100, id);
  World(102, 1, {0, 1}, "start");
  Add(110, "evaluating", R"("step":5,"workers":[0,1])");
  Kill(111, 0);
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kEvaluating);
  EXPECT_EQ(SpansOf(0).back().ended, LaneEnd::kLost);
  Add(112, "job_start", R"("job":"j","command":"train")");
  EXPECT_EQ(SpansOf(1).back().state, LaneState::kTraining);
  EXPECT_EQ(SpansOf(1).back().begin, 112);
}

TEST_F(HistoryTest, WhoDoesNotAnswerIsSilentUntilItIsHeardOrLost) {
  const std::string server = R"("pod":"elasticdl-ps-j-0","type":"ps","id":0)";
  Add(1, "pod_started", server + ",\"pid\":3");
  Start(100, 0);
  Add(104, "silent",
      R"("type":"worker","id":0,"reason":"has not answered for 5s")");
  // It is still a starting one when it comes back, and did so meanwhile.
  Ready(105, 0);
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kSilent);
  EXPECT_EQ(SpansOf(0).back().reason, "has not answered for 5s");
  Add(107, "heard", R"("type":"worker","id":0)");
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kTraining);
  EXPECT_EQ(SpansOf(0).back().reason, "");
  Add(108, "silent", R"("type":"worker","id":0,"reason":"x")");
  Kill(120, 0);
  EXPECT_EQ(SpansOf(0).back().state, LaneState::kSilent);
  EXPECT_EQ(SpansOf(0).back().ended, LaneEnd::kLost);
  // Who is gone, or was never there, says nothing either.
  Add(121, "silent", R"("type":"worker","id":0,"reason":"x")");
  Add(121, "silent", R"("type":"worker","id":77,"reason":"x")");
  Add(122, "silent", R"("type":"ps","id":0,"reason":"x")");
  for (const Span& span : history_.Since(0).spans) {
    if (span.server && !span.end.has_value()) {
      EXPECT_EQ(span.state, LaneState::kSilent);
    }
  }
  EXPECT_THAT(SpansOf(77), SizeIs(0));
}

TEST_F(HistoryTest, TheEndOfTheJobEndsAllLanes) {
  Add(1, "job_start", R"("job":"j","command":"train","flags":["--a=1"])");
  Start(1, 0);
  Add(9, "job_end", R"("state":"succeeded","reason":"finished")");
  EXPECT_EQ(SpansOf(0).back().end, 9);
  EXPECT_EQ(history_.summary().state, "succeeded");
  EXPECT_THAT(history_.summary().flags, ElementsAre("--a=1"));
}

TEST_F(HistoryTest, ChangesHaveWhatIsNew) {
  Start(100, 0);
  const uint64_t cursor = history_.cursor();
  EXPECT_THAT(history_.Since(cursor).spans, SizeIs(0));
  EXPECT_FALSE(history_.Since(cursor).all);
  Ready(103, 0);
  const Changes changes = history_.Since(cursor);
  // The one that ended and the one that began.
  EXPECT_THAT(changes.spans, SizeIs(2));
  EXPECT_THAT(changes.events, SizeIs(1));
  // A cursor of another run.
  EXPECT_TRUE(history_.Since(cursor + 1000).all);
}

TEST_F(HistoryTest, BadLinesAreRefused) {
  for (const char* line :
       {"", "x", "[]", "{}", "{\"time\":1}", "{\"event\":\"world\"}",
        "{\"time\":\"x\",\"event\":\"world\"}",
        "{\"time\":-1,\"event\":\"world\"}",
        "{\"time\":2e11,\"event\":\"world\"}"}) {
    EXPECT_FALSE(history_.Add(line).ok()) << line;
  }
  EXPECT_EQ(history_.cursor(), 0u);
}

TEST_F(HistoryTest, FieldsOfWrongTypesDoNoHarm) {
  for (const char* event : {"world",
                            "pod_created",
                            "pod_started",
                            "pod_ended",
                            "worker_ready",
                            "worker_lost",
                            "checkpoint",
                            "evaluation",
                            "progress",
                            "scaled",
                            "ps_scaling",
                            "ps_scaled",
                            "task_quarantined",
                            "job_start",
                            "job_end",
                            "evaluating",
                            "saving",
                            "silent",
                            "heard",
                            "first_step",
                            "something new"}) {
    for (const char* fields :
         {"", R"("id":-5,"worker_id":-1,"members":7,"metrics":[1],"flags":3)",
          R"("id":"x","members":["a",null,1e99],"metrics":{"a":"b"})",
          R"("id":0,"type":"worker","workers":[0,"a",null,1e99,-1,{}])",
          R"("workers":7,"reason":[])",
          R"("id":0,"type":7,"pod":[],"generation":{},"flags":[1,"--x"])"}) {
      Add(5, event, fields);
    }
  }
  EXPECT_FALSE(ChangesToJson(history_.Since(0), "").empty());
}

TEST_F(HistoryTest, AClockThatGoesBackMakesNoNegativeSpans) {
  Start(100, 0);
  Ready(50, 0);
  World(60, 1, {0}, "start");
  for (const Span& span : history_.Since(0).spans) {
    EXPECT_GE(span.end.value_or(1e9), span.begin);
  }
}

TEST_F(HistoryTest, TimeGoesOnAfterAClockWasSetBack) {
  Start(1000, 0);
  Ready(500, 0);
  World(510, 1, {0}, "start");
  EXPECT_NEAR(SpansOf(0)[1].begin, 1000.1, 1e-6);
  EXPECT_NEAR(SpansOf(0)[1].end.value_or(0), 1010.1, 1e-6);
  EXPECT_NEAR(history_.Since(0).skew, 500.1, 1e-6);
}

TEST_F(HistoryTest, LongTextsAreCutAndTheOtherFieldsStay) {
  const std::string text(5000, 'x');
  std::string metrics;
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&metrics, i > 0 ? "," : "", "\"metric ", i, "\":0.5");
  }
  Add(1, "checkpoint",
      absl::StrCat("\"path\":\"", text, "\",\"version\":7,\"ms\":3"));
  Add(2, "evaluation", absl::StrCat("\"metrics\":{", metrics, "},\"step\":8"));
  Add(3, "unknown", absl::StrCat("\"list\":[\"", text, "\"]"));
  const std::vector<EventLine> events = history_.Since(0).events;
  ASSERT_THAT(events, SizeIs(3));
  for (const EventLine& event : events) {
    EXPECT_LE(event.json.size(), History::kMaxLine);
  }
  EXPECT_EQ(Json::parse(events[0].json)["version"], 7);
  EXPECT_EQ(Json::parse(events[1].json)["step"], 8);
  EXPECT_THAT(Json::parse(events[1].json)["metrics"],
              SizeIs(History::kMaxMetrics));
  EXPECT_EQ(Json::parse(events[2].json)["cut"], true);
}

TEST_F(HistoryTest, JsonIsValidForHostileText) {
  Add(1, "job_start", R"("job":"</script><b>\u0000","command":"train")");
  ASSERT_TRUE(history_
                  .Add("{\"time\":2,\"event\":\"\xff\xfe\",\"reason\":"
                       "\"\xe2\x28\xa1\"}")
                  .code() == absl::StatusCode::kInvalidArgument);
  Add(3, "worker_lost",
      absl::StrCat("\"worker_id\":1,\"reason\":\"", std::string(100000, 'x'),
                   "\""));
  const std::string text = ChangesToJson(history_.Since(0), "");
  const Json json = Json::parse(text);
  EXPECT_LT(text.size(), 5000u);
  EXPECT_THAT(json["status"]["job"].get<std::string>(), HasSubstr("</script>"));
  EXPECT_EQ(json["events"].size(), 2u);
}

TEST_F(HistoryTest, CurvesAreThinnedNotCut) {
  for (int i = 0; i < 20000; ++i) {
    Add(1000 + i, "progress",
        absl::StrCat("\"step\":", i, ",\"loss\":0.5,\"records_per_s\":10"));
  }
  const std::vector<Point> points = history_.Since(0).points;
  EXPECT_LE(points.size(), History::kMaxPoints);
  EXPECT_GT(points.size(), History::kMaxPoints / 4);
  EXPECT_EQ(points.front().step, 0);
  EXPECT_GT(points.back().step, 19900);
}

// Steps of half a minute, lines every three: what a line says of the last
// seconds is 0, unless a step has just ended.
TEST_F(HistoryTest, CurveOfALongJobHasTheRateBetweenItsPoints) {
  const int kLines = 24 * 60 * 60 / 180;
  for (int i = 0; i < kLines; ++i) {
    Add(1000 + 180 * i, "progress",
        absl::StrCat("\"step\":", 6 * i, ",\"records_done\":", 6 * 64 * i,
                     ",\"records_per_s\":", i % 30 == 0 ? 64 / 0.5 : 0));
  }
  const std::vector<Point> points = history_.Since(0).points;
  ASSERT_THAT(points, SizeIs(kLines));
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_NEAR(points[i].records_per_s, 6 * 64 / 180.0, 1e-6) << i;
  }
  // A rollback is not negative work.
  Add(1000 + 180 * kLines, "progress",
      R"("step":3,"records_done":192,"records_per_s":7)");
  EXPECT_EQ(history_.Since(0).points.back().records_per_s, 7);
}

TEST_F(HistoryTest, ThinnedCurvesKeepTheMeanRate) {
  // Fast and slow seconds alternate.
  for (int i = 0; i < 20000; ++i) {
    Add(1000 + i, "progress",
        absl::StrCat("\"step\":", i, ",\"records_done\":", (i + 1) / 2 * 100,
                     ",\"records_per_s\":", i % 2 == 0 ? 0 : 100));
  }
  const std::vector<Point> points = history_.Since(0).points;
  double sum = 0;
  for (const Point& point : points) sum += point.records_per_s;
  EXPECT_NEAR(sum / static_cast<double>(points.size()), 50, 5);
}

// A week with 200 workers, one of which is killed every ten seconds and
// replaced.
TEST_F(HistoryTest, AWeekWithTwoHundredWorkersStaysBelowEightMegabytes) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::vector<int> workers;
  double time = 1e9;
  int id = 0;
  for (; id < 200; ++id) {
    Start(time, id);
    workers.push_back(id);
  }
  int generation = 0;
  World(time += 3, ++generation, workers, "start", 0);
  const int kKills = 7 * 24 * 360;
  size_t most = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const size_t victim = random() % workers.size();
    const int lost = workers[victim];
    workers.erase(workers.begin() + static_cast<long>(victim));
    time += 9;
    // Those who stay are left out: it is about what changes.
    World(time, ++generation, {},
          absl::StrCat("worker ", lost, " lost: its process died"), 30);
    Kill(time, lost);
    Start(time, id, lost);
    Ready(time + 0.7, id);
    workers.push_back(id);
    World(time += 1, ++generation, {id}, absl::StrCat("worker ", id, " joined"),
          3);
    ++id;
    Add(time, "progress", R"("step":5,"loss":0.5,"records_per_s":10)");
    if (kill % 30 == 0) {
      Add(time, "checkpoint", R"("version":5,"path":"/a/b/c","ms":20)");
      Add(time, "evaluation", R"("step":5,"metrics":{"accuracy":0.9})");
    }
    if (kill % 1000 == 0) most = std::max(most, history_.bytes());
  }
  most = std::max(most, history_.bytes());
  EXPECT_LT(most, 8u << 20);
  const Changes all = history_.Since(0);
  const std::string text = ChangesToJson(all, "");
  std::cout << "memory " << most / 1000 << " kB, JSON " << text.size() / 1000
            << " kB, resolution " << all.resolution << " s\n";
  EXPECT_LT(text.size(), 6u << 20);
  EXPECT_LT(all.resolution, 20000);
  EXPECT_EQ(all.totals.lost, kKills);
  EXPECT_EQ(all.totals.worlds, 2 * kKills + 1);
  // Nobody is missing, and no row has two at a time.
  std::map<int64_t, double> reached;
  std::set<int64_t> there;
  int64_t lost = 0;
  for (const Span& span : all.spans) {
    // Times are rounded to microseconds here.
    EXPECT_GE(span.begin, reached[span.row] - 1e-3);
    reached[span.row] = span.end.value_or(1e12);
    lost += span.lost;
    // A merged loss can be seen.
    EXPECT_TRUE(span.lost == 0 || span.ended != LaneEnd::kNone);
    if (!span.end.has_value()) there.insert(span.member);
  }
  EXPECT_EQ(lost, kKills);
  EXPECT_EQ(reached.size(), 200u);
  EXPECT_EQ(there, std::set<int64_t>(workers.begin(), workers.end()));
  double pauses = 0;
  int64_t worlds = 0;
  for (const WorldMark& world : all.worlds) {
    pauses += world.total_pause_ms;
    worlds += world.worlds;
  }
  EXPECT_EQ(worlds, 2 * kKills + 1);
  EXPECT_NEAR(pauses, 33.0 * kKills, 1);
}

// A week with an evaluation and a checkpoint every minute, and a kill every
// hour: it is the former that are forgotten.
TEST_F(HistoryTest, EvaluationsDoNotCostTheExactnessOfKills) {
  std::vector<int> workers;
  double time = 1e9;
  int id = 0;
  for (; id < 100; ++id) {
    Start(time, id);
    workers.push_back(id);
  }
  const std::string all = absl::StrJoin(workers, ",");
  World(time += 3, 1, workers, "start", 0);
  int kills = 0;
  for (int minute = 0; minute < 7 * 24 * 60; ++minute) {
    Add(time += 50, "evaluating", "\"workers\":[" + all + "]");
    Add(time += 5, "evaluating", "\"workers\":[]");
    Add(time += 1, "saving", "\"workers\":[0]");
    Add(time += 2, "saving", "\"workers\":[]");
    time += 2;
    if (minute % 60 != 30) continue;
    // The last one; others evaluate with their old ids.
    const int lost = id - 1;
    Kill(time, lost);
    Start(time, id, lost);
    World(time + 1, minute, {id}, "x");
    ++id;
    ++kills;
  }
  const Changes changes = history_.Since(0);
  EXPECT_LE(changes.spans.size(), History::kMaxSpans);
  EXPECT_EQ(changes.resolution, 0) << "lives were merged";
  int lost = 0;
  bool newest = false;
  for (const Span& span : changes.spans) {
    EXPECT_EQ(span.members, 1);
    lost += span.ended == LaneEnd::kLost ? 1 : 0;
    newest |= span.state == LaneState::kEvaluating && span.begin > time - 120;
  }
  EXPECT_EQ(lost, kills);
  EXPECT_TRUE(newest) << "the newest evaluation was forgotten";
  // Nobody's time has a gap or is there twice.
  std::map<int64_t, double> reached;
  for (const Span& span : changes.spans) {
    EXPECT_GE(span.begin, reached[span.row]);
    reached[span.row] = span.end.value_or(1e12);
  }
  for (const auto& [row, end] : reached) EXPECT_EQ(end, 1e12) << row;
}

// However it is asked, in steps or at once, the same comes out.
TEST_F(HistoryTest, ChangesAddUpToTheWhole) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  std::map<uint64_t, std::string> known;
  uint64_t cursor = 0;
  double time = 1;
  for (int id = 0; id < 3000; ++id) {
    Start(time += 1, id, static_cast<int>(id) - 3);
    Ready(time += 0.2, id);
    World(time += 0.1, id, {id}, "x");
    if (id >= 2) Kill(time += 0.5, id - 2);
    if (random() % 5 != 0) continue;
    const Changes changes = history_.Since(cursor);
    if (changes.all) known.clear();
    for (const Span& span : changes.spans) {
      known[span.id] = absl::StrCat(span.begin, " ", span.end.value_or(-1));
    }
    cursor = changes.cursor;
  }
  for (const Span& span : history_.Since(cursor).spans) {
    known[span.id] = absl::StrCat(span.begin, " ", span.end.value_or(-1));
  }
  std::map<uint64_t, std::string> whole;
  for (const Span& span : history_.Since(0).spans) {
    whole[span.id] = absl::StrCat(span.begin, " ", span.end.value_or(-1));
  }
  EXPECT_EQ(known, whole);
}

}  // namespace
}  // namespace elasticdl::page
