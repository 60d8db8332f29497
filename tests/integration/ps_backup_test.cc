// --ps_backup=1: servers are lost with their logs, and training goes on with
// every value exact.
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/ps_backups.h"

namespace elasticdl::test {
namespace {

class PsBackupTest : public PsBackups,
                     public testing::WithParamInterface<const char*> {
 protected:
  std::unique_ptr<Job> StartBackedUp(const std::string& name, int64_t servers,
                                     Flags flags = {}) {
    flags.push_back(GetParam());
    return PsBackups::StartBackedUp(name, servers, flags);
  }
};

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// In both modes a version is one minibatch, so the tally is the same.
INSTANTIATE_TEST_SUITE_P(Modes, PsBackupTest,
                         testing::Values("--use_async", "--grads_to_wait=1"),
                         [](const auto& info) {
                           return info.index == 0 ? "Async" : "Sync";
                         });

TEST_P(PsBackupTest, NothingHappens) {
  const auto job = StartBackedUp("calm", 2);
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  const auto scale = Run("scale", {Program("elasticdl"), "scale",
                                   "--job_name=calm", "--num_ps_pods=1"});
  EXPECT_NE(scale->Wait(), 0);
  EXPECT_THAT(scale->err(), HasSubstr("must be at least 2 in a job with "
                                      "--ps_backup=1"));
  Finish(*job);
  EXPECT_THAT(List(Path("state/elasticdl/jobs/calm/ps")), IsEmpty());
}

TEST_P(PsBackupTest, AServerIsLostWithItsLog) {
  const auto job = StartBackedUp("lost", 2);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  LoseNode(*job, "lost", 0);
  ASSERT_TRUE(WaitForTakeover(*job, 0)) << job->Output();
  ASSERT_TRUE(WaitForSteps(*job, 60));
  // Its successor has everything by now: the next one may be lost.
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  LoseNode(*job, "lost", 1);
  ASSERT_TRUE(WaitForTakeover(*job, 1)) << job->Output();
  ASSERT_TRUE(WaitForTakeover(*job, 0, 2)) << job->Output();
  ASSERT_TRUE(WaitForSteps(*job, 100));
  Finish(*job);
}

// All three in turn, each as primary and as backup, with and without their
// logs.
TEST_P(PsBackupTest, ServersAreKilledInTurn) {
  const auto job = StartBackedUp("turn", 3);
  Walk();
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(WaitForSteps(*job, 20 + 25 * i));
    ASSERT_TRUE(WaitForBackups(*job, 3)) << job->Output();
    if (i % 2 == 0) {
      LoseNode(*job, "turn", i % 3);
    } else {
      Kill(*job, "ps", i % 3);
    }
  }
  Finish(*job);
}

// Without waiting for anything; the logs stay.
TEST_P(PsBackupTest, ServersAreKilledAtOnce) {
  const auto job = StartBackedUp("once", 2);
  Walk();
  for (int64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(WaitForSteps(*job, 15 + 20 * i));
    Kill(*job, "ps", i % 2);
    if (i >= 2) Kill(*job, "ps", 1 - i % 2);
  }
  Finish(*job);
}

// Both copies are lost: no value is made up.
TEST_P(PsBackupTest, BothCopiesAreLost) {
  const auto job = StartBackedUp("both", 2);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  for (int64_t server : {0, 1}) {
    ASSERT_EQ(kill(PidOf(*job, "ps", server), SIGSTOP), 0);
  }
  for (int64_t server : {0, 1}) LoseNode(*job, "both", server);
  Go();
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_THAT(job->Output(), HasSubstr("its log, or the end of it, is lost"));
}

// A primary is only stopped. It wakes up after the takeover.
TEST_P(PsBackupTest, AnOldPrimaryIsFenced) {
  const auto job = StartBackedUp("fenced", 2, {"--worker_timeout=2"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  const pid_t pid = PidOf(*job, "ps", 0);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(WaitForTakeover(*job, 0)) << job->Output();
  ASSERT_TRUE(WaitForSteps(*job, 60));
  // It may have been replaced by now.
  kill(pid, SIGCONT);
  ASSERT_TRUE(WaitForSteps(*job, 90));
  Finish(*job);
}

TEST_P(PsBackupTest, CheckpointsAreWhole) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = StartBackedUp(
      "saves", 2, {"--checkpoint_steps=40", "--checkpoint_dir=" + checkpoints});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  LoseNode(*job, "saves", 1);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
  EXPECT_THAT(Versions(checkpoints), Not(IsEmpty()));
  const auto evaluated =
      Evaluate("evaluated", {"--model_def=tally.custom_model",
                             "--validation_data=" + chaos_csv(),
                             "--checkpoint_dir_for_init=" + checkpoints});
  ASSERT_EQ(evaluated->Wait(), 0) << evaluated->Output();
  EXPECT_EQ(LastMetrics(*evaluated)["least"], -kMinibatches);
  EXPECT_EQ(LastMetrics(*evaluated)["row_squared"], kEpochs * kEpochs);
}

}  // namespace
}  // namespace elasticdl::test
