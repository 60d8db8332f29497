// Nobody stays: all workers are asked to leave at once (a drained node, a
// cluster that takes the whole job away), or the job is stopped. What was
// trained is saved first, and training goes on from there.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LeaveTest : public ChaosTest {
 protected:
  // Three workers that save nothing but what they save when they leave, and the
  // last model. They train together.
  std::unique_ptr<Job> StartThree(const Flags& more = {},
                                  const std::string& name = "chaos") {
    return StartThreeAfter(3, more, name);
  }
  // Worker 0 is there before the others, and is rank 0.
  std::unique_ptr<Job> StartOneThenThree(const Flags& more) {
    return StartThreeAfter(1, more, "chaos");
  }
  std::unique_ptr<Job> StartThreeAfter(int64_t first, const Flags& more,
                                       const std::string& name) {
    Flags flags = {"--checkpoint_dir=" + checkpoints(),
                   "--checkpoint_steps=100000"};
    flags.insert(flags.end(), more.begin(), more.end());
    auto job = StartJobNamed(name, first, flags);
    if (first < 3 && WaitForSize(*job, first)) Scale(*job, 3);
    EXPECT_TRUE(job->WaitUntil("steps of three", [](const auto& events) {
      const Json world = LastWorld(events);
      const Json& last = events.back();
      return !world.is_null() && world.at("members").size() == 3 &&
             last.at("event") == "first_step" &&
             last.at("generation") == world.at("generation");
    }));
    const std::vector<Json> steps = job->Events("first_step");
    if (!steps.empty()) trained_ = steps.back().at("step");
    Walk();
    return job;
  }

  static void TermAll(Job& job) {
    std::vector<pid_t> pids;
    for (const int64_t id : {0, 1, 2}) pids.push_back(Pid(job, id));
    for (const pid_t pid : pids) ASSERT_EQ(kill(pid, SIGTERM), 0);
  }

  // A model was saved that has what was trained before the signal, and whoever
  // came later went on with it.
  void ExpectSavedAndRestored(Job& job) {
    EXPECT_THAT(CutBacks(job), IsEmpty()) << "trained steps were given up";
    const std::vector<Json> saved = job.Events("checkpoint");
    ASSERT_THAT(saved, SizeIs(2)) << job.Output();
    const int64_t step = saved[0].at("version");
    EXPECT_GE(step, trained_);
    EXPECT_LT(step, job.End().at("step"));
    EXPECT_EQ(saved[1].at("version"), job.End().at("step"));
    // A replacement that is ready while those who leave still save gets the
    // model from them.
    EXPECT_EQ(RestoredBy(job, step), HandedOver(job) ? 0 : 1) << job.Output();
  }

  // One of the first workers was in a world with one that came in its place.
  static bool HandedOver(Job& job) {
    for (const Json& world : job.Events("world")) {
      const auto members = world.at("members").get<std::vector<int64_t>>();
      const auto [least, most] =
          std::minmax_element(members.begin(), members.end());
      if (*least <= 2 && *most > 2) return true;
    }
    return false;
  }

  // How many workers loaded the version of that step.
  int RestoredBy(Job& job, int64_t step) const {
    int count = 0;
    for (const int64_t id : job.WorkersWithLogs()) {
      count += absl::StrContains(job.Log(absl::StrCat(id)),
                                 absl::StrCat("restored ", checkpoints(),
                                              "/version-", step, " "))
                   ? 1
                   : 0;
    }
    return count;
  }

  std::string checkpoints() const { return Path("checkpoints"); }

  // At least so many steps were trained when StartThree returned.
  int64_t trained_ = 0;
};

// Whatever goes wrong in a worker that was asked to leave, it only leaves.
TEST_F(LeaveTest, AFailureWhileLeavingFailsNothing) {
  const auto job = StartThree({"--failpoints=1:worker.stop=error"});
  Signal(*job, 1, SIGTERM);
  ASSERT_TRUE(job->WaitUntil("the end of worker 1", [](const auto& events) {
    const Json& last = events.back();
    return last.at("event") == "pod_ended" && last.at("id") == 1;
  }));
  Finish(*job);
  const Json ended = job->Events("pod_ended").front();
  EXPECT_EQ(ended.at("failure"), false) << ended;
  EXPECT_THAT(ended.at("reason").get<std::string>(), HasSubstr("exit code 0"));
  EXPECT_THAT(job->Log("1"), HasSubstr("worker.stop"));
}

TEST_F(LeaveTest, SigtermOfAllAtOnceSavesTheModel) {
  const auto job = StartThree();
  TermAll(*job);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  ExpectSavedAndRestored(*job);
  for (const Json& ended : job->Events("pod_ended")) {
    // One of the others may have come too late.
    if (ended.at("id") > 2) continue;
    EXPECT_EQ(ended.at("failure"), false) << ended;
    EXPECT_THAT(ended.at("reason").get<std::string>(),
                HasSubstr("exit code 0"));
  }
}

// The first that goes leaves too few to train: the others wait, and the last
// of them has the model.
TEST_F(LeaveTest, SigtermOfAllBelowTheMinimumSavesTheModel) {
  const auto job = StartThree({"--min_workers=3"});
  TermAll(*job);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  ExpectSavedAndRestored(*job);
}

// Steps of 100 ms: the second signal comes while the others form a world
// without the first, or after it.
TEST_F(LeaveTest, SigtermOneAfterTheOther) {
  const auto job = StartThree();
  Stroll();
  Signal(*job, 0, SIGTERM);
  ASSERT_TRUE(WaitForWorld(*job, {1, 2}));
  Signal(*job, 1, SIGTERM);
  Signal(*job, 2, SIGTERM);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  ExpectSavedAndRestored(*job);
}

TEST_F(LeaveTest, AnotherSavesWhenTheFirstIsKilledInTheSave) {
  const auto job = StartOneThenThree({"--failpoints=0:checkpoint.write=kill"});
  TermAll(*job);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  ExpectSavedAndRestored(*job);
  EXPECT_THAT(job->Events("pod_ended")[0].at("reason").get<std::string>(),
              HasSubstr("signal 9"));
}

// The grace is over before anything is saved.
TEST_F(LeaveTest, WhatIsNotSavedInTimeIsTrainedAgain) {
  const auto job =
      StartThree({"--keep_state=false",
                  "--failpoints=0:checkpoint.write=kill;"
                  "1:checkpoint.write=kill;2:checkpoint.write=kill"});
  TermAll(*job);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
  EXPECT_THAT(job->Events("checkpoint"), SizeIs(1));
  EXPECT_THAT(Versions(checkpoints()), SizeIs(1));
}

TEST_F(LeaveTest, WithoutAFolderForItNothingIsSaved) {
  const auto job = StartThree(
      {"--checkpoint_dir=", "--checkpoint_steps=0", "--keep_state=false"});
  TermAll(*job);
  for (const int64_t id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
}

TEST_F(LeaveTest, NothingIsSavedWhenOneStays) {
  const auto job = StartThree();
  Signal(*job, 0, SIGTERM);
  Signal(*job, 1, SIGTERM);
  ASSERT_TRUE(WaitForLoss(*job, 0) && WaitForLoss(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Events("checkpoint"), SizeIs(1)) << "only the last model";
}

TEST_F(LeaveTest, AStoppedJobGoesOnWhereItWasStopped) {
  const auto job = StartThree({}, "stopped");
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=stopped"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_EQ(job->End().at("state"), "stopped");
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  const std::vector<Json> saved = job->Events("checkpoint");
  ASSERT_THAT(saved, SizeIs(1)) << job->Output();
  const int64_t step = saved[0].at("version");
  EXPECT_GE(step, trained_);
  EXPECT_EQ(job->End().at("step"), step);

  Go();
  const auto next =
      StartJobNamed("next", 2, {"--checkpoint_dir_for_init=" + checkpoints()});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  EXPECT_EQ(RestoredBy(*next, step), 1) << next->Output();
  // Each record once, in one job or the other.
  const std::string both = Path("both.audit");
  std::ofstream(both) << Contents(job->audit()) << Contents(next->audit());
  EXPECT_TRUE(CheckLedger(
      both, {absl::StrCat("--epochs=", kEpochs),
             absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)}));
}

TEST_F(LeaveTest, ASecondCtrlCDoesNotWaitForTheSave) {
  const auto job =
      StartOneThenThree({"--failpoints=0:checkpoint.write=delay(100000)"});
  job->process().Signal(SIGINT);
  ASSERT_TRUE(job->WaitUntil("the last world", [](const auto& events) {
    return events.back().at("event") == "world" &&
           events.back().at("cause") == "all workers are leaving";
  }));
  job->process().Signal(SIGINT);
  EXPECT_NE(job->Wait(), 0);
  EXPECT_THAT(Versions(checkpoints()), IsEmpty());
}

// All go in the middle of an evaluation, at a step that is saved: those who
// come next evaluate it before they train on.
class LeaveEvaluationTest : public JobTest {
 protected:
  void HitInEvaluation(int signal) {
    const std::string checkpoints = Path("checkpoints");
    const auto job =
        Train("evaluation",
              {"--validation_data=" + test_csv(), "--evaluation_steps=10",
               "--num_epochs=2", "--checkpoint_steps=10",
               "--checkpoint_dir=" + checkpoints,
               // Of the first worker; the evaluation takes six minibatches.
               "--failpoints=0:worker.evaluate=delay(1000)"});
    const pid_t pid = job->WaitForWorker(0);
    job->WaitForEvent("checkpoint");
    ASSERT_EQ(kill(pid, signal), 0);
    ASSERT_EQ(job->Wait(), 0) << job->Output();
    EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
    EXPECT_THAT(CutBacks(*job), IsEmpty());
    std::vector<int> steps;
    for (const Json& event : job->Events("evaluation")) {
      steps.push_back(event.at("step"));
    }
    EXPECT_THAT(steps, ElementsAre(10, 20, 30, 40));
    EXPECT_EQ(job->End().at("step"), 40);
  }
};

TEST_F(LeaveEvaluationTest, Sigterm) { HitInEvaluation(SIGTERM); }
TEST_F(LeaveEvaluationTest, Sigkill) { HitInEvaluation(SIGKILL); }

}  // namespace
}  // namespace elasticdl::test
