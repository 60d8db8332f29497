// A job with parameter servers is broken off: stopped, or all of its workers
// are asked to leave. Its model is saved first, with the ledger of that moment.
// The model counts (zoo/tally.cc), so it tells what is in it.
#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "integration/tally_replay.h"

namespace elasticdl::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PsLeaveTest : public ChaosTest,
                    public testing::WithParamInterface<const char*> {
 protected:
  static constexpr int64_t kMinibatches = kRecords / 8 * kEpochs;

  std::unique_ptr<Job> StartPs(const std::string& name, const Flags& more) {
    Flags flags = {
        "--distribution_strategy=ParameterServerStrategy",
        "--model_def=tally.custom_model", "--training_data=" + chaos_csv(),
        "--validation_data=" + chaos_csv(), "--num_ps_pods=2",
        "--num_workers=2", absl::StrCat("--num_epochs=", kEpochs),
        "--minibatch_size=8",
        // Positions in the audit are records.
        "--shuffle=false", "--checkpoint_dir=" + Path(name + "-saved"),
        "--model_params=pace=" + pace()};
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
  static bool WaitForSteps(Job& job, int64_t steps) {
    LineFollower audit(job.audit());
    for (auto line = audit.Next(); line.has_value(); line = audit.Next()) {
      if (Json::parse(*line).value("step", int64_t{0}) >= steps) return true;
    }
    ADD_FAILURE() << "step " << steps << " does not come; " << job.Output();
    return false;
  }
  static void SignalWorker(Job& job, int64_t id, int signal) {
    pid_t pid = 0;
    for (const Json& event : job.Events("pod_started")) {
      if (event.at("type") == "worker" && event.at("id") == id) {
        pid = event.at("pid");
      }
    }
    ASSERT_GT(pid, 0);
    EXPECT_EQ(kill(pid, signal), 0);
  }
  // The saved model of the step has so many minibatches in it, and the rows of
  // a replay of the audits in one process.
  void ExpectSaved(int64_t step, const Job& job) {
    TallyReplay replay(/*async=*/job.Has("--use_async"));
    replay.Train(job.audit(), step);
    EXPECT_EQ(replay.Compare(absl::StrCat(checkpoints(), "/version-", step)),
              "");
    const auto evaluated = Evaluate(
        "evaluated",
        {"--model_def=tally.custom_model", "--validation_data=" + chaos_csv(),
         absl::StrCat("--checkpoint_dir_for_init=", checkpoints(), "/version-",
                      step)});
    ASSERT_EQ(evaluated->Wait(), 0) << evaluated->Output();
    ExpectMinibatches(*evaluated, step);
  }
  static void ExpectMinibatches(Job& job, int64_t count) {
    const std::vector<Json> evaluations = job.Events("evaluation");
    ASSERT_THAT(evaluations, testing::Not(IsEmpty())) << job.Output();
    std::map<std::string, double> metrics = evaluations.back().at("metrics");
    EXPECT_EQ(metrics["least"], -count) << job.Output();
    EXPECT_EQ(metrics["most"], -count);
    // The mean over the records; each minibatch has eight.
    EXPECT_NEAR(metrics["row"], -8.0 * static_cast<double>(count) / kRecords,
                1e-6);
  }
  std::string checkpoints() const { return Path("checkpoints"); }
};

// In both modes a version is one minibatch.
INSTANTIATE_TEST_SUITE_P(Modes, PsLeaveTest,
                         testing::Values("--use_async", "--grads_to_wait=1"),
                         [](const auto& info) {
                           return info.index == 0 ? "Async" : "Sync";
                         });

TEST_P(PsLeaveTest, AStoppedJobGoesOnWhereItWasStopped) {
  const auto job =
      StartPs("stopped", {GetParam(), "--checkpoint_dir=" + checkpoints()});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=stopped"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_EQ(job->End().at("state"), "stopped");
  const std::vector<Json> saved = job->Events("checkpoint");
  ASSERT_THAT(saved, SizeIs(1)) << job->Output();
  const int64_t step = saved[0].at("version");
  EXPECT_GE(step, 20);
  EXPECT_EQ(job->End().at("step"), step);
  ExpectSaved(step, *job);

  Go();
  const auto next = StartPs(
      "next", {GetParam(), "--checkpoint_dir_for_init=" + checkpoints()});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  // Each record once, in one job or the other.
  const std::string both = Path("both.audit");
  std::ofstream(both) << Contents(job->audit()) << Contents(next->audit());
  EXPECT_TRUE(CheckLedger(
      both, {absl::StrCat("--epochs=", kEpochs),
             absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)}));
  ExpectMinibatches(*next, kMinibatches);
  TallyReplay replay(/*async=*/next->Has("--use_async"));
  replay.Train(both);
  EXPECT_EQ(replay.Compare(next->Flag("--checkpoint_dir")), "");
}

TEST_P(PsLeaveTest, CtrlCSavesTheModel) {
  const auto job =
      StartPs("interrupted", {GetParam(), "--checkpoint_dir=" + checkpoints()});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  job->process().Signal(SIGINT);
  EXPECT_NE(job->Wait(), 0);
  const std::vector<Json> saved = job->Events("checkpoint");
  ASSERT_THAT(saved, SizeIs(1)) << job->Output();
  ExpectSaved(saved[0].at("version"), *job);
}

TEST_P(PsLeaveTest, SigtermOfAllWorkersSavesTheModel) {
  const auto job = StartPs("left", {GetParam(), "--keep_checkpoint_max=0",
                                    "--checkpoint_dir=" + checkpoints()});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  SignalWorker(*job, 0, SIGTERM);
  SignalWorker(*job, 1, SIGTERM);
  const Json saved = job->WaitForEvent("checkpoint");
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs));
  ExpectMinibatches(*job, kMinibatches);
  const int64_t step = saved.at("version");
  EXPECT_GE(step, 20);
  EXPECT_LT(step, kMinibatches);
  ExpectSaved(step, *job);
}

TEST_P(PsLeaveTest, NothingIsSavedWhenOneStays) {
  const auto job =
      StartPs("stays", {GetParam(), "--checkpoint_dir=" + checkpoints()});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  SignalWorker(*job, 0, SIGTERM);
  job->WaitForEvent("worker_lost");
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("checkpoint"), SizeIs(1)) << "only the last model";
}

// However many workers there are, and whatever happens to them.
TEST_P(PsLeaveTest, NoMoreThanMaxStepMinibatchesAreTrained) {
  const auto job =
      StartPs("counted", {GetParam(), "--num_workers=3", "--max_step=101"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  SignalWorker(*job, 0, SIGKILL);
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_EQ(job->End().at("step"), 101);
  ExpectMinibatches(*job, 101);
}

}  // namespace
}  // namespace elasticdl::test
