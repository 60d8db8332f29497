// The master of a local job is killed: the client starts it again, and it goes
// on with the same workers and servers, every record once.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/ps_chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

size_t CountEvents(const std::vector<Json>& events, const std::string& name) {
  size_t count = 0;
  for (const Json& event : events) {
    if (event.at("event") == name) ++count;
  }
  return count;
}

pid_t MasterOf(Job& job) { return job.Events("job_start").back().at("pid"); }

// Pids of all pods that were started so far.
std::vector<pid_t> Pods(Job& job) {
  std::vector<pid_t> pids;
  for (const Json& event : job.Events("pod_started")) {
    pids.push_back(event.at("pid"));
  }
  return pids;
}

bool IsAlive(pid_t pid) {
  const std::string stat = Contents(absl::StrCat("/proc/", pid, "/stat"));
  return !stat.empty() && !absl::StrContains(stat, ") Z ");
}

bool IsStopped(pid_t pid) {
  return absl::StrContains(Contents(absl::StrCat("/proc/", pid, "/stat")),
                           ") T ");
}

void KillMaster(Job& job) {
  const size_t restarts = job.Events("master_restarted").size();
  ASSERT_EQ(kill(MasterOf(job), SIGKILL), 0);
  ASSERT_TRUE(job.WaitUntil("the next master", [&](const auto& events) {
    return CountEvents(events, "master_restarted") > restarts;
  })) << job.Output();
  EXPECT_EQ(job.Events("master_restarted").back().at("signal"), SIGKILL);
}

// A world that the newest master has formed, with a step in it.
bool WaitForNextWorld(Job& job) {
  return job.WaitUntil("a step with the next master", [&](const auto& events) {
    bool restarted = false;
    bool stepped = false;
    for (const Json& event : events) {
      if (event.at("event") == "master_restarted") {
        restarted = true;
        stepped = false;
      }
      if (event.at("event") == "first_step") stepped = restarted;
    }
    return stepped;
  });
}

// Tests that wait for a new worker let the job go slowly.
class LocalMasterTest : public ChaosTest {
 protected:
  static bool WaitForFirstStep(Job& job, size_t workers) {
    return WaitForSize(job, workers) &&
           job.WaitUntil("a step", [&](const auto& events) {
             for (const Json& event : events) {
               if (event.at("event") == "first_step" &&
                   event.at("generation") ==
                       LastWorld(events).at("generation")) {
                 return true;
               }
             }
             return false;
           });
  }
  // Waits until one of workers 0 and 1 has stopped itself, at a failpoint; -1
  // when none does.
  static int64_t WaitUntilOneStops(Job& job) {
    const std::vector<pid_t> pids = {Pid(job, 0), Pid(job, 1)};
    for (int i = 0; i < 600; ++i) {
      if (IsStopped(pids[0])) return 0;
      if (IsStopped(pids[1])) return 1;
      job.NextEvent(absl::Milliseconds(50));
    }
    return -1;
  }
};

TEST_F(LocalMasterTest, TrainingGoesOnInTheSameProcesses) {
  const auto job = StartJob(2);
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  Walk();
  const std::vector<pid_t> before = Pods(*job);
  ASSERT_THAT(before, SizeIs(2));
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  for (const pid_t pid : before) EXPECT_TRUE(IsAlive(pid)) << job->Output();
  Finish(*job);
  EXPECT_EQ(Pods(*job), before);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
  EXPECT_THAT(job->Log("master"),
              HasSubstr("2 of 2 workers attached again, nothing is lost"));
  EXPECT_THAT(
      job->process().err(),
      HasSubstr("the master was killed (signal 9) and is started again"));
  // The next master has seen their ends.
  EXPECT_THAT(job->Events("pod_ended"), SizeIs(2));
}

TEST_F(LocalMasterTest, Twice) {
  const auto job = StartJob(2);
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  Walk();
  const std::vector<pid_t> before = Pods(*job);
  for (int i = 0; i < 2; ++i) {
    KillMaster(*job);
    ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  }
  Finish(*job);
  EXPECT_EQ(Pods(*job), before);
  EXPECT_EQ(job->Events("master_restarted").back().at("restarts"), 2);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(LocalMasterTest, TogetherWithAWorker) {
  const auto job = StartJob(3);
  ASSERT_TRUE(WaitForFirstStep(*job, 3));
  const pid_t worker = Pid(*job, 1);
  const pid_t master = MasterOf(*job);
  kill(worker, SIGKILL);
  kill(master, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 1));
  // It is replaced, by the next master.
  ASSERT_TRUE(WaitForReady(*job, 3));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Events("master_restarted"), SizeIs(1));
}

// What ends while there is no master, and what ends later.
TEST_F(LocalMasterTest, EndsOfAdoptedWorkersAreSeen) {
  const auto job = StartJob(3);
  ASSERT_TRUE(WaitForFirstStep(*job, 3));
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  Signal(*job, 2, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 2));
  ASSERT_TRUE(WaitForReady(*job, 3));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  bool seen = false;
  for (const Json& event : job->Events("pod_ended")) {
    if (event.at("id") != 2) continue;
    EXPECT_THAT(event.at("reason"), HasSubstr("SIGKILL"));
    seen = true;
  }
  EXPECT_TRUE(seen) << job->Output();
}

// The state of the only worker is kept again, by the next master.
TEST_F(LocalMasterTest, KeptStateIsKeptAgain) {
  const auto job = StartJob(1);
  ASSERT_TRUE(WaitForFirstStep(*job, 1));
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  Signal(*job, 0, SIGKILL);
  ASSERT_TRUE(WaitForReady(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(LocalMasterTest, DuringAnEvaluation) {
  const auto job = StartJob(
      2, {"--validation_data=" + test_csv(), "--evaluation_steps=40",
          "--min_workers=2", "--failpoints=1:worker.evaluate=stop@2x1"});
  ASSERT_TRUE(WaitForSize(*job, 2));
  Walk();
  ASSERT_EQ(WaitUntilOneStops(*job), 1);
  KillMaster(*job);
  Signal(*job, 1, SIGCONT);
  Finish(*job);
  const auto evaluations = job->Events("evaluation");
  ASSERT_FALSE(evaluations.empty());
  EXPECT_EQ(evaluations.front().at("step"), 40);
  EXPECT_EQ(evaluations.back().at("step"), job->End().at("step"));
  for (size_t i = 1; i < evaluations.size(); ++i) {
    EXPECT_GT(evaluations[i].at("step"), evaluations[i - 1].at("step"));
  }
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(LocalMasterTest, DuringASave) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = StartJob(
      2, {"--checkpoint_steps=40", "--checkpoint_dir=" + checkpoints,
          "--min_workers=2", "--failpoints=checkpoint.write=stop@3x1"});
  ASSERT_TRUE(WaitForSize(*job, 2));
  Walk();
  // Rank 0 saves, which may be either.
  const int64_t saver = WaitUntilOneStops(*job);
  ASSERT_GE(saver, 0);
  EXPECT_THAT(Versions(checkpoints), IsEmpty());
  KillMaster(*job);
  Signal(*job, saver, SIGCONT);
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_EQ(Versions(checkpoints).back(), job->End().at("step"));
}

TEST_F(LocalMasterTest, KilledClientStillEndsEverything) {
  const auto job = StartJob(2);
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  Walk();
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  const std::vector<pid_t> pods = Pods(*job);
  const pid_t master = MasterOf(*job);
  job->process().Signal(SIGKILL);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(WaitForEnd(master));
  for (const pid_t pid : pods) EXPECT_TRUE(WaitForEnd(pid));
}

TEST_F(LocalMasterTest, StopFollowsTheJobNotTheMaster) {
  const auto job = StartJob(2, {"--num_epochs=0"});
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  Scale(*job, 3);
  ASSERT_TRUE(WaitForSize(*job, 3));
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=chaos"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_EQ(job->End().at("state"), "stopped");
}

// Ctrl-C while no master runs: the next one ends the job in order.
TEST_F(LocalMasterTest, InterruptedWithoutAMaster) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = StartJob(2, {"--num_epochs=0", "--checkpoint_steps=100000",
                                "--checkpoint_dir=" + checkpoints});
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  KillMaster(*job);
  ASSERT_TRUE(WaitForNextWorld(*job)) << job->Output();
  const pid_t master = MasterOf(*job);
  ASSERT_EQ(kill(master, SIGKILL), 0);
  ASSERT_TRUE(WaitForEnd(master));
  // The next one is started a second later.
  job->process().Signal(SIGINT);
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_EQ(job->End().at("state"), "stopped");
  EXPECT_THAT(Versions(checkpoints), SizeIs(1));
}

// A job that somebody has stopped does not begin again.
TEST_F(LocalMasterTest, KilledWhileTheJobStops) {
  const auto job = StartJob(2, {"--num_epochs=0", "--checkpoint_steps=100000",
                                "--checkpoint_dir=" + Path("checkpoints"),
                                "--failpoints=checkpoint.write=stop@1x1"});
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=chaos"});
  ASSERT_GE(WaitUntilOneStops(*job), 0);
  ASSERT_EQ(kill(MasterOf(*job), SIGKILL), 0);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL) << job->Output();
  EXPECT_THAT(job->Events("master_restarted"), IsEmpty());
  for (const pid_t pid : Pods(*job)) EXPECT_TRUE(WaitForEnd(pid));
  stop->Wait();
}

// A worker that is stopped meanwhile is given up by the next master, and its
// process ended, although that master has not started it.
TEST_F(LocalMasterTest, AnAdoptedWorkerThatHangsIsReplaced) {
  const auto job = StartJob(2, {"--worker_timeout=2"});
  ASSERT_TRUE(WaitForFirstStep(*job, 2));
  const pid_t hanging = Pid(*job, 1);
  ASSERT_EQ(kill(hanging, SIGSTOP), 0);
  KillMaster(*job);
  ASSERT_TRUE(WaitForLoss(*job, 1));
  ASSERT_TRUE(WaitForReady(*job, 2));
  Finish(*job);
  EXPECT_FALSE(IsAlive(hanging));
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

class LocalMasterPsTest : public PsChaosTest {};

TEST_F(LocalMasterPsTest, ServersAndWorkersStay) {
  const auto job = StartPs("ps", 2, 2, {});
  ASSERT_TRUE(WaitForSteps(*job, 20));
  const std::vector<pid_t> before = Pods(*job);
  ASSERT_THAT(before, SizeIs(4));
  KillMaster(*job);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
  EXPECT_EQ(Pods(*job), before);
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
}

TEST_F(LocalMasterPsTest, TogetherWithAServer) {
  const auto job = StartPs("ps", 2, 2, {});
  ASSERT_TRUE(WaitForSteps(*job, 20));
  const pid_t server = PidOf(*job, "ps", 1);
  const pid_t master = MasterOf(*job);
  kill(server, SIGKILL);
  kill(master, SIGKILL);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
  EXPECT_THAT(job->Events("master_restarted"), SizeIs(1));
  EXPECT_NE(PidOf(*job, "ps", 1), server);
}

}  // namespace
}  // namespace elasticdl::test
