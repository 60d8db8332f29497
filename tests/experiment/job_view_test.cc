#include "elasticdl/experiment/job_view.h"

#include <cmath>
#include <csignal>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Started(double time, int id, int pid) {
  return absl::StrFormat(
      R"({"time":%f,"event":"pod_started","type":"worker","id":%d,"pid":%d})",
      time, id, pid);
}
std::string World(double time, int generation,
                  const std::vector<int>& members) {
  return absl::StrFormat(
      R"({"time":%f,"event":"world","generation":%d,"members":[%s]})", time,
      generation, absl::StrJoin(members, ","));
}
std::string FirstStep(double time, int generation, int step) {
  return absl::StrFormat(
      R"({"time":%f,"event":"first_step","generation":%d,"step":%d})", time,
      generation, step);
}

// A job of two workers that has started at time 100.
JobView TwoWorkers() {
  JobView view(2);
  view.OnLine(Started(98, 0, 1000));
  view.OnLine(Started(98, 1, 1001));
  view.OnLine(World(99, 1, {0, 1}));
  view.OnLine(FirstStep(100, 1, 1));
  return view;
}

std::vector<pid_t> Pids(const std::vector<JobPod>& pods) {
  std::vector<pid_t> pids;
  for (const JobPod& pod : pods) pids.push_back(pod.pid);
  return pids;
}

Action KillAt(double at, double pick = 0) {
  Action action;
  action.at = at;
  action.pick = pick;
  return action;
}

TEST(JobViewTest, StartsWithTheFirstStepOfAllWorkers) {
  JobView view(2);
  view.OnLine(Started(98, 0, 1000));
  view.OnLine(World(99, 1, {0}));
  view.OnLine(FirstStep(99.5, 1, 1));
  EXPECT_FALSE(view.started());
  EXPECT_EQ(view.first_step_at(), 99.5);
  view.OnLine(Started(99.6, 1, 1001));
  view.OnLine(World(99.8, 2, {0, 1}));
  view.OnLine(FirstStep(100, 2, 7));
  EXPECT_EQ(view.started_at(), 100);
  EXPECT_EQ(view.step(), 7);
  EXPECT_THAT(Pids(view.Workers()), ElementsAre(1000, 1001));
}

// On a cluster nobody has a pid here.
TEST(JobViewTest, KnowsPodsByTheirNames) {
  JobView view(2);
  for (const int id : {0, 1}) {
    view.OnLine(
        absl::StrFormat(R"({"time":98,"event":"pod_started",)"
                        R"("pod":"w-%d","type":"worker","id":%d,"pid":0})",
                        id, id));
  }
  view.OnLine(World(99, 1, {0, 1}));
  view.OnLine(FirstStep(100, 1, 1));
  ASSERT_THAT(view.Workers(), SizeIs(2));
  EXPECT_EQ(view.Workers()[1].name, "w-1");
  // It was deleted; the job may say so later.
  view.OnPodEnded("w-0");
  ASSERT_THAT(view.Workers(), SizeIs(1));
  EXPECT_EQ(view.Workers()[0].name, "w-1");
}

TEST(JobViewTest, PassesOverWhatItDoesNotKnow) {
  JobView view = TwoWorkers();
  for (const char* line :
       {"", "{", "[]", "7", R"({"event":7})", R"({"event":"world"})",
        R"({"event":"pod_started","id":"x","pid":[]})",
        R"({"event":"world","members":{"a":1}})"}) {
    view.OnLine(line);
  }
  EXPECT_TRUE(view.started());
}

TEST(TraceDriverTest, DeliversOnceWhenDue) {
  TraceDriver driver({KillAt(5, 0.9)});
  const JobView view = TwoWorkers();
  EXPECT_THAT(driver.Due(104.9, view), IsEmpty());
  EXPECT_EQ(driver.NextTime(view), 105);
  const auto due = driver.Due(105, view);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].signal, SIGKILL);
  EXPECT_THAT(Pids(due[0].pods), ElementsAre(1001));
  EXPECT_THAT(driver.Due(200, view), IsEmpty());
  EXPECT_TRUE(std::isinf(driver.NextTime(view)));
}

TEST(TraceDriverTest, NothingHappensBeforeTheJobHasStarted) {
  TraceDriver driver({KillAt(0)});
  JobView view(2);
  view.OnLine(Started(98, 0, 1000));
  EXPECT_THAT(driver.Due(1000, view), IsEmpty());
  EXPECT_TRUE(std::isinf(driver.NextTime(view)));
}

TEST(TraceDriverTest, AKillWaitsForWorkers) {
  TraceDriver driver({KillAt(1)});
  JobView view = TwoWorkers();
  view.OnProcessEnded(1000);
  view.OnProcessEnded(1001);
  EXPECT_THAT(driver.Due(102, view), IsEmpty());
  view.OnLine(Started(103, 1, 1002));
  const auto due = driver.Due(103, view);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_THAT(Pids(due[0].pods), ElementsAre(1002));
}

TEST(TraceDriverTest, StoppedProcessesGoOnLater) {
  Action stop = KillAt(1);
  stop.kind = ActionKind::kStop;
  stop.seconds = 3;
  stop.count = 9;
  TraceDriver driver({stop});
  const JobView view = TwoWorkers();
  const auto first = driver.Due(101, view);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].signal, SIGSTOP);
  EXPECT_THAT(first[0].pods, SizeIs(2));
  EXPECT_EQ(driver.NextTime(view), 104);
  const auto second = driver.Due(104, view);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].signal, SIGCONT);
}

TEST(TraceDriverTest, ActionsAtStepsAndScalings) {
  Action at_step = KillAt(0);
  at_step.step = 50;
  Action join = KillAt(2);
  join.kind = ActionKind::kJoin;
  join.count = 3;
  Action leave = KillAt(3);
  leave.kind = ActionKind::kLeave;
  leave.count = 9;
  TraceDriver driver({at_step, join, leave});
  JobView view = TwoWorkers();
  const auto due = driver.Due(103, view);
  ASSERT_THAT(due, SizeIs(2));
  EXPECT_EQ(due[0].target, 5);
  EXPECT_EQ(due[1].target, 1);
  view.OnLine(FirstStep(104, 2, 50));
  EXPECT_THAT(driver.Due(104, view), SizeIs(1));
}

// Workers die and come back at random; each action of a random trace is
// delivered exactly once, to a worker that lives, not before its time.
TEST(TraceDriverTest, RandomTracesAreDeliveredExactlyOnce) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    TraceSpec spec;
    spec.mtbf = 0.2 + static_cast<double>(random() % 30) / 10;
    const auto actions = DrawActions(spec, seed, 60);
    TraceDriver driver(actions);
    JobView view = TwoWorkers();
    std::set<pid_t> alive = {1000, 1001};
    pid_t next_pid = 1002;
    size_t delivered = 0;
    double now = 100;
    while (now < 400) {
      now += static_cast<double>(random() % 1000) / 500;
      for (int id = 0; id < 2; ++id) {
        if (alive.size() < 2 && random() % 3 == 0) {
          alive.insert(next_pid);
          view.OnLine(Started(now, id, next_pid++));
        }
      }
      for (const Delivery& one : driver.Due(now, view)) {
        ASSERT_LE(100 + actions[delivered].at, now);
        ++delivered;
        for (const pid_t pid : Pids(one.pods)) {
          // Two kills at once may hit the same process.
          alive.erase(pid);
          view.OnProcessEnded(pid);
        }
      }
    }
    EXPECT_EQ(delivered, actions.size());
  }
}

}  // namespace
}  // namespace elasticdl::experiment
