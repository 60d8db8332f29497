// However a job ends, no process of it stays: JobTest checks that after each
// test.
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Ne;

class ShutdownTest : public JobTest {
 protected:
  // A job without end, whose worker waits before step 10.
  std::unique_ptr<Job> StartLongJob(const Flags& more = {}) {
    gate_ = MakeGate();
    Flags flags = {"--num_epochs=0", absl::StrCat("--model_params=gate=", gate_,
                                                  ";gate_step=10")};
    flags.insert(flags.end(), more.begin(), more.end());
    auto job = Train("long", flags);
    master_ = job->WaitForEvent("job_start").at("pid");
    worker_ = job->WaitForWorker(0);
    EXPECT_TRUE(WaitForGate(gate_));
    return job;
  }

  std::string gate_;
  pid_t master_ = 0;
  pid_t worker_ = 0;
};

TEST_F(ShutdownTest, KilledMasterTakesTheJobWithItIfNobodyWaitsForIt) {
  const auto job = StartLongJob({"--master_timeout=0"});
  ASSERT_EQ(kill(master_, SIGKILL), 0);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL) << job->Output();
  EXPECT_TRUE(WaitForEnd(worker_));
  EXPECT_THAT(job->process().err(), HasSubstr("the master of job long ended"));
}

TEST_F(ShutdownTest, CtrlCStopsTheJob) {
  const auto job = StartLongJob();
  job->process().Signal(SIGINT);
  OpenGate(gate_);
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_TRUE(WaitForEnd(worker_));
  EXPECT_TRUE(WaitForEnd(master_));
  EXPECT_EQ(job->End().at("state"), "stopped");
  EXPECT_THAT(job->process().err(),
              AllOf(HasSubstr("stopping the job"),
                    HasSubstr("job long stopped: interrupted; ")));
}

TEST_F(ShutdownTest, SecondCtrlCDoesNotWaitForAWorkerThatHangs) {
  const auto job = StartLongJob();
  job->process().Signal(SIGINT);
  // The worker hangs at its gate; the client has taken the first signal when it
  // says so.
  LineFollower said(job->process().err_path());
  while (const auto line = said.Next()) {
    if (line->find("stopping the job") != std::string::npos) break;
  }
  job->process().Signal(SIGINT);
  EXPECT_THAT(job->Wait(), Ne(0));
  EXPECT_TRUE(WaitForEnd(worker_));
  EXPECT_TRUE(WaitForEnd(master_));
}

TEST_F(ShutdownTest, TerminatedClientStopsTheJob) {
  const auto job = StartLongJob();
  job->process().Signal(SIGTERM);
  OpenGate(gate_);
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_EQ(job->End().at("state"), "stopped");
  EXPECT_THAT(std::string(job->End().at("reason")), HasSubstr("terminated"));
}

TEST_F(ShutdownTest, KilledClientTakesTheJobWithIt) {
  const auto job = StartLongJob();
  job->process().Signal(SIGKILL);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(WaitForEnd(master_));
  EXPECT_TRUE(WaitForEnd(worker_));
}

TEST_F(ShutdownTest, DetachedJobIsStoppedByName) {
  const auto job = StartLongJob({"--detach=true"});
  EXPECT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->process().out(),
              HasSubstr("elasticdl stop --job_name=long"));
  const auto list = Run("list", {Program("elasticdl"), "list"});
  EXPECT_EQ(list->Wait(), 0) << list->err();
  EXPECT_THAT(list->out(), HasSubstr("long"));

  OpenGate(gate_);
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=long"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_TRUE(WaitForEnd(master_));
  EXPECT_TRUE(WaitForEnd(worker_));
  EXPECT_EQ(job->End().at("state"), "stopped");
}

TEST_F(ShutdownTest, JobCanBeStartedAgainAfterAKill) {
  auto job = StartLongJob();
  job->process().Signal(SIGKILL);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(WaitForEnd(master_));
  // The same name: nothing of the dead job is in the way.
  job = Train("long", {});
  EXPECT_EQ(job->Wait(), 0) << job->Output();
}

}  // namespace
}  // namespace elasticdl::test
