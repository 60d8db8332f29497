#include "elasticdl/experiment/cluster_job.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kStart[] = R"({"time":100.5,"event":"job_start","job":"j"})";
constexpr char kRange[] =
    R"({"epoch":0,"shard":"d","begin":0,"end":64,"worker_id":0,"generation":1,"step":1})";
constexpr char kProgress[] =
    R"({"time":101,"event":"progress","step":1,"records_done":64})";
constexpr char kEnd[] = R"({"time":102,"event":"job_end","state":"stopped"})";

TEST(ClusterJobTest, AnImageMakesAJobOnACluster) {
  EXPECT_FALSE(OnCluster({}));
  EXPECT_FALSE(OnCluster({{"image", ""}, {"num_workers", "2"}}));
  EXPECT_TRUE(OnCluster({{"image", "zoo:1"}}));
  EXPECT_TRUE(OnCluster({{"image_name", "zoo:1"}}));
  EXPECT_TRUE(OnCluster({{"docker_image_prefix", "registry/me"}}));
}

TEST(ClusterJobTest, NamesOfJobsAreNamesOfPods) {
  const std::string run = "0123456789ab";
  EXPECT_EQ(ClusterJobName("kills", run, ""), "kills-0123456789ab");
  EXPECT_EQ(ClusterJobName("My_Plan.v2", run, ""), "my-plan-v2-0123456789ab");
  EXPECT_EQ(ClusterJobName("2nd", run, ""), "exp-2nd-0123456789ab");
  EXPECT_EQ(ClusterJobName("__", run, ""), "exp-0123456789ab");
  EXPECT_EQ(ClusterJobName("two", run, "Job_1"), "two-0123456789ab-job-1");
  // What flags::kMaxJobName allows.
  const std::string endless(100, '1');
  EXPECT_LE(ClusterJobName(endless, run, "").size(), 46u);
  EXPECT_LE(ClusterJobName(endless, run, endless).size(), 46u);
}

TEST(ClusterJobTest, RefusesWhatAClusterCannotDo) {
  const Plan plan;
  experiment::Run run;
  EXPECT_TRUE(CheckOnCluster(plan, run).ok());
  Action stop;
  stop.kind = ActionKind::kStop;
  run.actions = {Action(), stop};
  EXPECT_THAT(std::string(CheckOnCluster(plan, run).message()),
              HasSubstr("use kill or preempt"));
  run.actions.clear();
  run.peer = kTorchrun;
  EXPECT_THAT(std::string(CheckOnCluster(plan, run).message()),
              HasSubstr("peer torchrun runs on this machine only"));
}

TEST(ClusterJobTest, JobsThatShareAClusterNeedNamesOfPods) {
  Plan plan;
  plan.sharing.slots = 3;
  plan.sharing.jobs.resize(2);
  experiment::Run run;
  run.policy = kElastic;
  plan.sharing.jobs[0].name = "first";
  plan.sharing.jobs[1].name = "second";
  EXPECT_TRUE(CheckOnCluster(plan, run).ok());
  plan.sharing.jobs[0].name = "First";
  plan.sharing.jobs[1].name = "first_";
  EXPECT_THAT(
      std::string(CheckOnCluster(plan, run).message()),
      HasSubstr("differ in their first 12 letters or digits: 'first_'"));
  plan.sharing.jobs[1].name = "second";
  plan.sharing.jobs[1].min_workers = 2;
  EXPECT_THAT(std::string(CheckOnCluster(plan, run).message()),
              HasSubstr("job second: min_workers has no effect on a cluster"));
  plan.sharing.service = {{0, 1}};
  EXPECT_TRUE(CheckOnCluster(plan, run).ok());
}

TEST(ClusterJobTest, KnowsWhenAPodWasKilled) {
  EXPECT_EQ(KillTime("{\"pod\":\"w-0\",\"time\":7.5}\n{\"time\":8}\n", 9), 7.5);
  EXPECT_EQ(KillTime("", 9), 9);
  EXPECT_EQ(KillTime("killed\n", 9), 9);
}

TEST(MasterLogTest, SortsLinesAndPassesOverThoseForPeople) {
  MasterLog log;
  const auto lines = log.Take(absl::StrCat(
      "starting {a job}\n", kStart, "\n",
      R"({"time":"12:00:01","level":"info","message":"a log as JSON"})", "\n",
      kRange, "\n{\"cut_back\":7}\n", kProgress, "\n", kEnd, "\n"));
  EXPECT_THAT(lines.events, ElementsAre(kStart, kProgress, kEnd));
  EXPECT_THAT(lines.audit, ElementsAre(kRange, "{\"cut_back\":7}"));
  EXPECT_EQ(log.damaged(), 0);
  EXPECT_EQ(log.starts(), 1);
  EXPECT_EQ(log.records(), 64);
  EXPECT_TRUE(log.ended());
}

TEST(MasterLogTest, LinesMayComeInAnyPieces) {
  const std::string text =
      absl::StrJoin({kStart, "hello", kRange, kProgress, kEnd}, "\n") + "\n";
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    MasterLog log;
    std::vector<std::string> events, audit;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 40;
      const auto lines = log.Take(absl::string_view(text).substr(at, size));
      events.insert(events.end(), lines.events.begin(), lines.events.end());
      audit.insert(audit.end(), lines.audit.begin(), lines.audit.end());
      at += size;
    }
    EXPECT_THAT(events, ElementsAre(kStart, kProgress, kEnd));
    EXPECT_THAT(audit, ElementsAre(kRange));
    EXPECT_EQ(log.damaged(), 0);
  }
}

// One case of a ledger that came through a log.
struct LedgerCase {
  std::vector<std::string> lines;
  // "" = exact.
  std::string problem;
};

TEST(MasterLogTest, ALedgerFromALogIsExactOnlyIfNothingIsMissing) {
  const LedgerCase cases[] = {
      {{kStart, kRange, kProgress, kEnd}, ""},
      {{kStart, R"({"time":1,"event":"model","ten)", kRange, kProgress, kEnd},
       ""},
      {{kStart, kProgress, kEnd}, "0 records of 64: lines are missing"},
      {{kStart, kRange, kProgress}, "the end of the master's log is missing"},
      {{kStart, kRange, kStart, kProgress, kEnd}, "the master was restarted"},
      {{kStart, kRange, kRange, kProgress, kEnd}, "twice"},
      {{kStart, kRange, std::string(kRange).substr(0, 50), kProgress, kEnd},
       "1 damaged line in the master's log"},
      {{kStart, kRange, absl::StrCat("step 7", kRange), kProgress, kEnd},
       "1 damaged line in the master's log"},
  };
  for (const LedgerCase& one : cases) {
    SCOPED_TRACE(one.problem);
    MasterLog log;
    const auto lines = log.Take(absl::StrJoin(one.lines, "\n") + "\n");
    const LedgerCheck check = CheckLogLedger(
        absl::StrJoin(lines.audit, "\n") + "\n", log, /*finished=*/false);
    EXPECT_EQ(check.exact, one.problem.empty()) << check.problem;
    EXPECT_THAT(check.problem, HasSubstr(one.problem));
  }
}

TEST(ClockOffsetTest, TheWayOfALogIsNoDifferenceOfClocks) {
  ClockOffset near;
  EXPECT_EQ(near.seconds(), 0);
  near.OnEvent(100, 103);  // the log was opened late
  near.OnEvent(104, 104.05);
  near.OnEvent(105, 105.4);
  EXPECT_EQ(near.seconds(), 0);
  ClockOffset ahead;
  ahead.OnEvent(100, 70.02);
  ahead.OnEvent(101, 71.5);
  EXPECT_NEAR(ahead.seconds(), -29.98, 1e-9);
  ClockOffset behind;
  behind.OnEvent(100, 160.5);
  behind.OnEvent(101, 161.02);
  EXPECT_NEAR(behind.seconds(), 60.02, 1e-9);
}

}  // namespace
}  // namespace elasticdl::experiment
