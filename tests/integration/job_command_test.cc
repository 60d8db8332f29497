// --job_command: any program in every worker, kept running by the master.
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class JobCommandTest : public JobTest {
 protected:
  std::unique_ptr<Job> Command(const std::string& name,
                               const std::string& command, Flags flags) {
    flags.push_back("--job_command=" + command);
    flags.push_back("--distribution_strategy=");
    return Train(name, flags);
  }
};

TEST_F(JobCommandTest, RunsInEveryWorkerWithItsNumber) {
  const auto job = Command(
      "all", absl::StrCat("echo $WORKER_ID of $WORKER_NUM >> ", Path("ran")),
      {"--num_workers=3"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(Lines(Path("ran")),
              UnorderedElementsAre("0 of 3", "1 of 3", "2 of 3"));
  EXPECT_EQ(job->End().at("state"), "succeeded");
}

TEST_F(JobCommandTest, AFailureIsRelaunchedWithinItsLimit) {
  const auto good =
      Command("good", "exit $((WORKER_ID == 0 ? 3 : 0))", {"--num_workers=1"});
  EXPECT_EQ(good->Wait(), 0) << good->Output();
  EXPECT_THAT(good->Events("pod_started"), SizeIs(2));
  const auto bad = Command(
      "bad", "exit 3", {"--num_workers=1", "--relaunch_on_worker_failure=0"});
  EXPECT_EQ(bad->Wait(), 1);
  EXPECT_THAT(std::string(bad->End().at("reason")), HasSubstr("exit code 3"));
}

TEST_F(JobCommandTest, AKilledOneIsReplacedAndAStopEndsAll) {
  const auto job = Command("long", "exec sleep 1000", {"--num_workers=2"});
  const Json first = job->WaitForEvent("pod_started");
  ASSERT_FALSE(first.is_null());
  kill(first.at("pid"), SIGKILL);
  ASSERT_FALSE(
      job->WaitForEvent("pod_started",
                        [](const Json& event) { return event.at("id") == 2; })
          .is_null());
  job->process().Signal(SIGINT);
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_EQ(job->End().at("state"), "stopped");
}

}  // namespace
}  // namespace elasticdl::test
