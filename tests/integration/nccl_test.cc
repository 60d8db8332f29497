// Elastic jobs whose workers have a GPU each and sum gradients by NCCL: on the
// doubles of tests/gpu, which CMake puts under the real programs.
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class NcclTest : public ChaosTest {
 protected:
  void SetUp() override {
    const char* const preloaded = getenv("LD_PRELOAD");
    if (preloaded == nullptr || !absl::StrContains(preloaded, "test_device")) {
      GTEST_SKIP() << "the test device is not preloaded";
    }
    ChaosTest::SetUp();
  }
  std::unique_ptr<Job> StartOnGpus(int64_t workers, Flags more = {}) {
    more.insert(more.begin(), {"--device=cuda", "--collective=nccl"});
    // Of two buckets, so that sums overlap with backward.
    return StartJob(workers, more, "ballast=300000");
  }
  // Worlds of more than one member did use NCCL.
  static void ExpectNccl(Job& job, int64_t worker, int size) {
    EXPECT_THAT(job.Log(absl::StrCat(worker)),
                HasSubstr(absl::StrCat(size, " members over NCCL")));
  }
};

TEST_F(NcclTest, ThreeTrain) {
  const auto job = StartOnGpus(3);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Finish(*job);
  for (const int worker : {0, 1, 2}) ExpectNccl(*job, worker, 3);
}

TEST_F(NcclTest, KilledInTheMiddleOfASum) {
  const auto job =
      StartOnGpus(4, {"--failpoints=1:collective.all_reduce=kill@150"});
  // Every look at a sum that is not done counts: on a busy machine the last one
  // joins after the kill.
  ASSERT_TRUE(WaitForLoss(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Log("0"), HasSubstr("members over NCCL"));
}

TEST_F(NcclTest, KilledWhileNcclConnects) {
  // The second visit of worker 2 is in the world that replaces the dead one's,
  // or before, if the three did not begin together.
  const auto job =
      StartOnGpus(3, {"--failpoints=2:collective.nccl.ready=kill@2"});
  ASSERT_TRUE(WaitForReady(*job, 1));
  ASSERT_TRUE(WaitForReady(*job, 2));
  Signal(*job, 1, SIGKILL);
  Finish(*job);
  std::set<int64_t> lost;
  for (const Json& event : job->Events("worker_lost")) {
    lost.insert(event.at("worker_id").get<int64_t>());
  }
  EXPECT_THAT(lost, ::testing::IsSupersetOf({1, 2}));
}

TEST_F(NcclTest, StoppedWorkerIsReplaced) {
  const auto job = StartOnGpus(3, {"--worker_timeout=2"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Signal(*job, 1, SIGSTOP);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2}));
  ASSERT_TRUE(WaitForWorld(*job, {0, 2, 3}));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(NcclTest, OneToFourToOne) {
  const auto job = StartOnGpus(1);
  ASSERT_TRUE(WaitForSize(*job, 1));
  Scale(*job, 4);
  ASSERT_TRUE(WaitForSize(*job, 4));
  Scale(*job, 1);
  ASSERT_TRUE(WaitForSize(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  ExpectNccl(*job, 0, 4);
}

TEST_F(NcclTest, AutoTakesIt) {
  const auto job = StartJob(2, {"--device=cuda", "--num_epochs=1"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Finish(*job, 1);
  ExpectNccl(*job, 0, 2);
}

// Two on one GPU: NCCL would refuse, so gradients go through the host.
TEST_F(NcclTest, SharedGpusDoWithout) {
  const auto job = StartJob(2, {"--device=cuda:0", "--num_epochs=1"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Finish(*job, 1);
  EXPECT_THAT(job->Log("0"), Not(HasSubstr("members over NCCL")));
  EXPECT_THAT(job->Log("0"), HasSubstr("share one GPU"));
}

TEST_F(NcclTest, TrainsWithoutIfNcclNeverConnects) {
  const auto job = StartJob(2, {"--device=cuda", "--num_epochs=1",
                                "--failpoints=collective.nccl.init=error"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Finish(*job, 1);
  EXPECT_THAT(job->Output(), HasSubstr("NCCL does not connect the workers"));
  EXPECT_THAT(job->Log("0"), Not(HasSubstr("members over NCCL")));
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
}

TEST_F(NcclTest, CpuIsRefused) {
  const auto job = StartJob(1, {"--device=cpu", "--collective=nccl"});
  EXPECT_EQ(job->Wait(), 2);
  EXPECT_THAT(job->Output(), HasSubstr("--collective=nccl is for GPUs"));
}

}  // namespace
}  // namespace elasticdl::test
