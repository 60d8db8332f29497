// All workers of a local job are killed, at any moment: the next ones go on
// with the very same step.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class KeepStateTest : public ChaosTest {
 protected:
  // Kills all members of the newest world, which has so many, at once, when a
  // step was reported in it.
  static void KillAll(Job& job, size_t size) { SignalAll(job, size, SIGKILL); }
  static void SignalAll(Job& job, size_t size, int signal) {
    std::set<int64_t> members;
    ASSERT_TRUE(job.WaitUntil("a step of the new world", [&](const auto& all) {
      members = Members(all);
      const auto is_step = [&](const Json& event) {
        return event.at("event") == "first_step" &&
               event.at("generation") == LastWorld(all).at("generation");
      };
      return members.size() == size &&
             std::any_of(all.begin(), all.end(), is_step);
    }));
    std::vector<pid_t> pids;
    for (const int64_t id : members) pids.push_back(Pid(job, id));
    for (const pid_t pid : pids) kill(pid, signal);
    for (const int64_t id : members) ASSERT_TRUE(WaitForLoss(job, id));
  }

  static pid_t MasterPid(Job& job) {
    return job.Events("job_start").at(0).at("pid");
  }

  // Memories of workers that a process has a descriptor of.
  static size_t NumKept(pid_t pid) {
    const std::string folder = absl::StrCat("/proc/", pid, "/fd");
    size_t kept = 0;
    for (const std::string& name : List(folder)) {
      std::string target(200, '\0');
      const ssize_t length = readlink(absl::StrCat(folder, "/", name).c_str(),
                                      target.data(), target.size());
      target.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
      if (absl::StrContains(target, "memfd:elasticdl-state")) ++kept;
    }
    return kept;
  }

  // A thread of the master gives memory back, soon after a world is level.
  static void ExpectKept(Job& job, size_t count) {
    const pid_t master = MasterPid(job);
    for (int i = 0; i < 100 && NumKept(master) != count; ++i) {
      job.NextEvent(absl::Milliseconds(100));
    }
    EXPECT_EQ(NumKept(master), count);
  }

  // The digest of the last model, from the log of whoever has it.
  static std::string LastDigest(Job& job) {
    const int64_t step = job.End().at("step");
    const auto digests = Digests(job, step);
    return digests.empty() ? "" : digests.begin()->second;
  }
};

TEST_F(KeepStateTest, TheOnlyWorkerAgainAndAgain) {
  const auto job = StartJob(1);
  Walk();
  for (int i = 0; i < 3; ++i) {
    KillAll(*job, 1);
    if (HasFatalFailure()) return;
  }
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(3));
  EXPECT_THAT(job->Log("3"), HasSubstr("took over the state"));
  // Each step has 8 records, whoever trained them.
  EXPECT_EQ(job->End().at("step"), kRecords * kEpochs / 8);
}

TEST_F(KeepStateTest, BothWorkersAtOnce) {
  const auto job = StartJob(2);
  Walk();
  for (int i = 0; i < 3; ++i) {
    KillAll(*job, 2);
    if (HasFatalFailure()) return;
  }
  ASSERT_TRUE(WaitForSize(*job, 2));
  // Of the dead ones nothing is left.
  ExpectKept(*job, 2);
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

// Nobody is dead, but nobody answers: they are killed, then their state counts.
TEST_F(KeepStateTest, AllHang) {
  const auto job = StartJob(2, {"--worker_timeout=2"});
  Walk();
  SignalAll(*job, 2, SIGSTOP);
  if (HasFatalFailure()) return;
  ASSERT_TRUE(WaitForSize(*job, 2));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Output(), HasSubstr("is still in memory"));
}

TEST_F(KeepStateTest, WithoutItTheJobGoesBack) {
  const auto job = StartJob(1, {"--keep_state=false"});
  Walk();
  KillAll(*job, 1);
  if (HasFatalFailure()) return;
  ExpectKept(*job, 0);
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
}

// Every process dies in the middle of an update: at the 700th chunk that it
// updates, of 5 in each step.
TEST_F(KeepStateTest, InTheMiddleOfAnUpdateTheBitsAreTheSame) {
  Go();
  const auto straight =
      StartJobNamed("straight", 1, {"--seed=3"}, "ballast=300000");
  ASSERT_EQ(straight->Wait(), 0) << straight->Output();
  const auto job = StartJobNamed(
      "torn", 1, {"--seed=3", "--failpoints=worker.update=kill@703"},
      "ballast=300000");
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs));
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(Ge(3u)));
  EXPECT_THAT(job->Log("1"), HasSubstr("finished the update"));
  EXPECT_EQ(job->End().at("step"), straight->End().at("step"));
  EXPECT_NE(LastDigest(*straight), "");
  EXPECT_EQ(LastDigest(*job), LastDigest(*straight));
}

// Whoever takes the state over dies, too, while it does.
TEST_F(KeepStateTest, TheHeirsDieToo) {
  const auto job = StartJob(
      1, {"--failpoints=1:worker.restore_kept=kill;2:level.give=kill@1;"
          "3:worker.apply=kill@1"});
  Walk();
  KillAll(*job, 1);
  if (HasFatalFailure()) return;
  ASSERT_TRUE(WaitForWorld(*job, {4}));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

// They crash when they take it over: so would the next ones.
TEST_F(KeepStateTest, AStateThatCrashesItsHeirsIsGivenUp) {
  const auto job = StartJob(
      1, {"--failpoints=1:worker.restore_kept=exit(3);2:worker.restore_kept="
          "exit(3);3:worker.restore_kept=exit(3)"});
  Walk();
  KillAll(*job, 1);
  if (HasFatalFailure()) return;
  ASSERT_TRUE(WaitForWorld(*job, {3}));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
  EXPECT_THAT(job->Output(), HasSubstr("crashed when they took over step"));
  EXPECT_THAT(job->Events("state_given_up"), SizeIs(1));
}

TEST_F(KeepStateTest, AStateThatCannotBeUsedIsGivenUp) {
  const auto job =
      StartJob(1, {"--failpoints=1:worker.restore_kept=error@1x1"});
  Walk();
  KillAll(*job, 1);
  if (HasFatalFailure()) return;
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
  EXPECT_THAT(job->Output(), HasSubstr("in memory cannot be used"));
}

// One of two dies: its memory is not needed when the other goes on.
TEST_F(KeepStateTest, MemoryIsGivenBack) {
  const auto job = StartJob(2);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  ExpectKept(*job, 2);
  Signal(*job, 0, SIGKILL);
  ASSERT_TRUE(WaitForWorld(*job, {1, 2}));
  ExpectKept(*job, 2);
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

// Its descriptors are the last ones: nothing has a name.
TEST_F(KeepStateTest, TheClientIsKilled) {
  const auto job = StartJob(2);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  const pid_t worker = Pid(*job, 0);
  job->process().Signal(SIGKILL);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  // The test's end finds processes that are left.
  EXPECT_TRUE(kill(worker, 0) != 0 || NumKept(worker) <= 1);
  for (const std::string& name : List("/dev/shm")) {
    EXPECT_THAT(name, Not(HasSubstr("elasticdl-state")));
  }
}

}  // namespace
}  // namespace elasticdl::test
