// Workers that are killed, asked to leave, or crash by themselves: the job goes
// on, and no record is lost or trained twice.
#include <signal.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

class RecoveryTest : public JobTest {
 protected:
  // Pids of the workers in the order of their start.
  static std::vector<pid_t> Pids(Job& job) {
    std::vector<pid_t> pids;
    for (const Json& event : job.Events("pod_started")) {
      pids.push_back(event.at("pid"));
    }
    return pids;
  }
};

TEST_F(RecoveryTest, KilledWorkerWithoutCheckpointStartsAnew) {
  const std::string gate = MakeGate();
  const auto job = Train(
      "kill", {"--num_epochs=2",
               absl::StrCat("--model_params=gate=", gate, ";gate_step=30"),
               "--keep_state=false",
               // A failure budget of 0: a kill is none.
               "--relaunch_on_worker_failure=0"});
  const pid_t pid = job->WaitForWorker(0);
  ASSERT_TRUE(WaitForGate(gate));
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(job->Wait(), 0) << job->Output();

  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
  ASSERT_THAT(job->Events("worker_lost"), SizeIs(1));
  EXPECT_EQ(job->Events("worker_lost")[0].at("worker_id"), 0);
  EXPECT_THAT(job->Events("worker_lost")[0].at("reason").get<std::string>(),
              HasSubstr("signal 9"));
  ASSERT_THAT(job->Events("worker_ready"), SizeIs(2));
  EXPECT_EQ(job->Events("worker_ready")[1].at("worker_id"), 1)
      << "ids are never used again";
  EXPECT_EQ(job->End().at("step"), 40);
}

TEST_F(RecoveryTest, KilledWorkerGoesOnFromTheCheckpoint) {
  const std::string gate = MakeGate();
  const std::string checkpoints = Path("checkpoints");
  const auto job =
      Train("kill", {"--num_epochs=2", "--validation_data=" + test_csv(),
                     "--evaluation_steps=10", "--checkpoint_steps=10",
                     "--checkpoint_dir=" + checkpoints, "--keep_state=false",
                     absl::StrCat("--model_params=await=", checkpoints,
                                  ";gate=", gate, ";gate_step=27")});
  const pid_t pid = job->WaitForWorker(0);
  ASSERT_TRUE(WaitForGate(gate));
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(job->Wait(), 0) << job->Output();

  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  EXPECT_THAT(CutBacks(*job), Each(20));
  EXPECT_THAT(job->Log("1"), HasSubstr("version-20"));
  EXPECT_EQ(job->End().at("step"), 40);
  EXPECT_THAT(Versions(checkpoints), ElementsAre(10, 20, 30, 40));
}

TEST_F(RecoveryTest, TheResultOfAnInterruptedTrainingIsTheSame) {
  const auto train = [&](const std::string& name, bool interrupt) {
    const std::string checkpoints = Path(name);
    const std::string gate = Path("gate");
    const auto job = Train(
        name,
        {"--num_epochs=2", "--seed=5", "--validation_data=" + test_csv(),
         "--evaluation_steps=10", "--checkpoint_steps=10",
         "--checkpoint_dir=" + checkpoints, "--keep_state=false",
         absl::StrCat("--model_params=await=", checkpoints,
                      interrupt ? ";gate=" + gate : "", ";gate_step=25")});
    if (interrupt) {
      const pid_t pid = job->WaitForWorker(0);
      EXPECT_TRUE(WaitForGate(gate));
      kill(pid, SIGKILL);
    }
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    return Contents(checkpoints + "/version-40/variables-0-of-1.ckpt");
  };
  MakeGate();
  const std::string straight = train("straight", false);
  EXPECT_FALSE(straight.empty());
  EXPECT_EQ(straight, train("interrupted", true));
}

TEST_F(RecoveryTest, WorkerThatIsAskedToLeaveHandsItsWorkOver) {
  const std::string gate = MakeGate();
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train(
      "leave", {"--num_epochs=2", "--checkpoint_steps=1000",
                "--checkpoint_dir=" + checkpoints,
                absl::StrCat("--model_params=gate=", gate, ";gate_step=15"),
                "--relaunch_on_worker_failure=0"});
  const pid_t pid = job->WaitForWorker(0);
  ASSERT_TRUE(WaitForGate(gate));
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  OpenGate(gate);
  ASSERT_EQ(job->Wait(), 0) << job->Output();

  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  ASSERT_THAT(job->Events("worker_lost"), SizeIs(1));
  EXPECT_THAT(job->Events("worker_lost")[0].at("reason").get<std::string>(),
              HasSubstr("left (SIGTERM)"));
  // It saved its model: nothing was lost.
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Log("1"), HasSubstr("restored " + checkpoints));
  ASSERT_THAT(job->Events("pod_ended"), SizeIs(2));
  EXPECT_EQ(job->Events("pod_ended")[0].at("failure"), false);
}

TEST_F(RecoveryTest, LeavingWithoutCheckpointsIsExactToo) {
  const std::string gate = MakeGate();
  // Slow steps: the signal arrives before the data is used up.
  const auto job = Train(
      "leave", {absl::StrCat("--model_params=gate=", gate, ";gate_step=5"),
                "--failpoints=worker.step=delay(100)@5x20"});
  const pid_t pid = job->WaitForWorker(0);
  ASSERT_TRUE(WaitForGate(gate));
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  OpenGate(gate);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  EXPECT_THAT(job->Events("worker_ready"), SizeIs(2));
}

// Record 200 kills whoever trains on it. Without shuffling it is in the task of
// records 192 to 224.
TEST_F(RecoveryTest, TaskThatKeepsCrashingIsSetAside) {
  const auto job =
      Train("crash", {"--shuffle=false", "--model_params=crash_at=200",
                      "--task_max_failures=2", "--num_epochs=1"});
  EXPECT_EQ(job->Wait(), 4) << job->Output();
  const std::string reason = job->End().at("reason");
  EXPECT_THAT(reason, AllOf(HasSubstr("records quarantined after failures"),
                            HasSubstr(train_csv()), HasSubstr("signal 11")));
  EXPECT_THAT(job->process().err(), HasSubstr("quarantined"));

  const auto events = job->Events("task_quarantined");
  ASSERT_THAT(events, SizeIs(1)) << job->Output();
  EXPECT_EQ(events[0].at("shard"), train_csv());
  const int64_t begin = events[0].at("begin");
  const int64_t end = events[0].at("end");
  EXPECT_LE(begin, 200);
  EXPECT_GT(end, 200);
  EXPECT_EQ(events[0].at("failures"), 2);
  // All others are in the model.
  EXPECT_TRUE(LedgerIsExact(
      job->audit(), 1,
      {absl::StrCat("--set_aside=0:", train_csv(), ":", begin, ":", end)}));
}

// The same, in the thread that reads ahead: the task that is to blame is not
// the one that is trained on, which is that of records 64 to 96.
TEST_F(RecoveryTest, TaskThatCrashesWhileItIsReadAheadIsSetAside) {
  const std::string gate = MakeGate();
  const auto job =
      Train("crash", {"--shuffle=false",
                      absl::StrCat("--model_params=gate=", gate,
                                   ";gate_step=5;crash_in_feed_at=100"),
                      "--task_max_failures=1", "--num_epochs=1"});
  job->WaitForEvent("worker_lost");
  // The next workers pass.
  std::ofstream(gate + "/reached") << "\n";
  EXPECT_EQ(job->Wait(), 4) << job->Output();
  const auto events = job->Events("task_quarantined");
  ASSERT_THAT(events, SizeIs(1)) << job->Output();
  const int64_t begin = events[0].at("begin");
  const int64_t end = events[0].at("end");
  EXPECT_LE(begin, 100);
  EXPECT_GT(end, 100);
  EXPECT_TRUE(LedgerIsExact(
      job->audit(), 1,
      {absl::StrCat("--set_aside=0:", train_csv(), ":", begin, ":", end)}));
}

TEST_F(RecoveryTest, WorkersThatAlwaysCrashFailTheJob) {
  const auto job =
      Train("hopeless", {"--model_params=crash=1", "--task_max_failures=1",
                         "--relaunch_on_worker_failure=1"});
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_EQ(job->End().at("state"), "failed");
  EXPECT_THAT(job->End().at("reason").get<std::string>(),
              HasSubstr("signal 11"));
  EXPECT_THAT(job->process().err(), HasSubstr("signal 11"));
  // Two in each place.
  EXPECT_THAT(job->Events("pod_started"), SizeIs(Le(4u))) << job->Output();
}

TEST_F(RecoveryTest, WorkerThatIsKilledAtItsStartIsReplaced) {
  const auto job = Train("start", {"--relaunch_on_worker_failure=0"});
  const pid_t pid = job->WaitForEvent("pod_started").at("pid");
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  EXPECT_THAT(job->Events("worker_ready"), SizeIs(1));
}

TEST_F(RecoveryTest, WorkerThatIsKilledInAnEvaluationIsReplaced) {
  const std::string checkpoints = Path("checkpoints");
  // An evaluation takes six minibatches: it dies in the second one.
  const auto job = Train(
      "evaluation", {"--validation_data=" + test_csv(), "--evaluation_steps=10",
                     "--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints,
                     // It waits for a checkpoint of the step that the dead
                     // worker may have been saving.
                     "--model_params=await=" + checkpoints,
                     "--failpoints=worker.evaluate=kill@9"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(1));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  std::vector<int> steps;
  for (const Json& event : job->Events("evaluation")) {
    steps.push_back(event.at("step"));
  }
  EXPECT_THAT(steps, ElementsAre(10, 20));
}

TEST_F(RecoveryTest, CrashAtTheEndOfTheTrainingIsReported) {
  const auto job = Train("end", {"--failpoints=worker.train_end=exit(3)",
                                 "--task_max_failures=2"});
  EXPECT_EQ(job->Wait(), 4) << job->Output();
  EXPECT_THAT(job->End().at("reason").get<std::string>(),
              AllOf(HasSubstr("TRAIN_END"), HasSubstr("exit code 3")));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
}

TEST_F(RecoveryTest, EvaluationGoesOnWhenItsWorkerIsKilled) {
  const std::string checkpoints = Path("checkpoints");
  const auto train = Train(
      "train", {"--validation_data=" + test_csv(), "--checkpoint_steps=1000",
                "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(train->Wait(), 0) << train->Output();
  // Each process dies at its sixth minibatch, in the third and last task; those
  // that were reported are not evaluated again.
  const auto job =
      Evaluate("evaluate", {"--checkpoint_dir_for_init=" + checkpoints,
                            "--failpoints=worker.evaluate=kill@6"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("worker_lost"), Not(IsEmpty()));
  ASSERT_THAT(job->Events("evaluation"), SizeIs(1));
  const auto same =
      Evaluate("same", {"--checkpoint_dir_for_init=" + checkpoints});
  ASSERT_EQ(same->Wait(), 0) << same->Output();
  const double all = same->Events("evaluation")[0].at("metrics").at("mse");
  EXPECT_EQ(train->Events("evaluation")[0].at("metrics").at("mse"), all);
  // Parts are added in another order.
  EXPECT_NEAR(job->Events("evaluation")[0].at("metrics").at("mse"), all,
              1e-9 * all);
}

}  // namespace
}  // namespace elasticdl::test
