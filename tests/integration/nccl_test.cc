// Elastic jobs whose workers have a GPU each and sum gradients by NCCL: on the
// doubles of tests/gpu, which CMake puts under the real programs, or on real
// GPUs, in worlds as large as there are.
#include <signal.h>

#include <algorithm>
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
    gpus_ = Gpus();
    if (gpus_.count == 0) GTEST_SKIP() << "no GPU: " << gpus_.why_none;
    if (gpus_.count < 2) GTEST_SKIP() << "NCCL needs two GPUs; there is one";
    ASSERT_EQ(gpus_.why_no_nccl, "");
    ChaosTest::SetUp();
  }
  // So many workers, or as many as there are GPUs.
  int64_t Most(int64_t workers) const {
    return std::min<int64_t>(workers, gpus_.count);
  }
  static std::set<int64_t> Ids(int64_t count) {
    std::set<int64_t> ids;
    for (int64_t id = 0; id < count; ++id) ids.insert(id);
    return ids;
  }
  std::unique_ptr<Job> StartOnGpus(int64_t workers, Flags more = {}) {
    more.insert(more.begin(), {"--device=cuda", "--collective=nccl"});
    // Of two buckets, so that sums overlap with backward.
    return StartJob(workers, more, "ballast=300000");
  }
  // Worlds of more than one member did use NCCL.
  static void ExpectNccl(Job& job, int64_t worker, int64_t size) {
    EXPECT_THAT(job.Log(absl::StrCat(worker)),
                HasSubstr(absl::StrCat(size, " members over NCCL")));
  }

  TestGpus gpus_;
};

TEST_F(NcclTest, ThreeTrain) {
  const int64_t size = Most(3);
  const auto job = StartOnGpus(size);
  ASSERT_TRUE(WaitForWorld(*job, Ids(size)));
  Finish(*job);
  for (const int64_t worker : Ids(size)) ExpectNccl(*job, worker, size);
}

TEST_F(NcclTest, KilledInTheMiddleOfASum) {
  const auto job =
      StartOnGpus(Most(4), {"--failpoints=1:collective.all_reduce=kill@150"});
  // Every look at a sum that is not done counts: on a busy machine the last one
  // joins after the kill.
  ASSERT_TRUE(WaitForLoss(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_THAT(job->Log("0"), HasSubstr("members over NCCL"));
}

TEST_F(NcclTest, KilledWhileNcclConnects) {
  if (gpus_.count < 3) GTEST_SKIP() << "two of three die; GPUs: 2";
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
  const int64_t size = Most(3);
  const auto job = StartOnGpus(size, {"--worker_timeout=2"});
  std::set<int64_t> members = Ids(size);
  ASSERT_TRUE(WaitForWorld(*job, members));
  Signal(*job, 1, SIGSTOP);
  members.erase(1);
  ASSERT_TRUE(WaitForWorld(*job, members));
  members.insert(size);
  ASSERT_TRUE(WaitForWorld(*job, members));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(NcclTest, OneToFourToOne) {
  const auto job = StartOnGpus(1);
  ASSERT_TRUE(WaitForSize(*job, 1));
  const int64_t most = Most(4);
  Scale(*job, most);
  ASSERT_TRUE(WaitForSize(*job, static_cast<size_t>(most)));
  Scale(*job, 1);
  ASSERT_TRUE(WaitForSize(*job, 1));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  ExpectNccl(*job, 0, most);
}

TEST_F(NcclTest, AutoTakesIt) {
  const auto job = StartJob(2, {"--device=cuda", "--num_epochs=1"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Finish(*job, 1);
  ExpectNccl(*job, 0, 2);
}

// Two on one GPU: NCCL would refuse, so gradients go through the host.
TEST_F(NcclTest, SharedGpusDoWithout) {
  const auto job =
      StartJob(2, {"--device=cuda:0", "--gpu_sharing", "--num_epochs=1"});
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
  EXPECT_THAT(job->Output(), HasSubstr("NCCL does not work between the"));
  EXPECT_THAT(job->Log("0"), Not(HasSubstr("members over NCCL")));
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
}

// Communicators are made, but the first sum, which opens connections, fails.
TEST_F(NcclTest, TrainsWithoutIfNcclCannotSum) {
  if (gpus_.real) GTEST_SKIP() << "only the double of NCCL can be told to fail";
  setenv("TEST_NCCL_SUM", "error", /*overwrite=*/1);
  const auto job = StartJob(2, {"--device=cuda", "--num_epochs=1"});
  unsetenv("TEST_NCCL_SUM");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Finish(*job, 1);
  EXPECT_THAT(job->Log("0"), HasSubstr("2 members over NCCL"));
  EXPECT_THAT(job->Output(), HasSubstr("NCCL does not work between the"));
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
}

TEST_F(NcclTest, FailsIfNcclIsWantedAndNeverConnects) {
  const auto job = StartOnGpus(2, {"--failpoints=collective.nccl.init=error"});
  EXPECT_NE(job->Wait(), 0);
  EXPECT_THAT(job->Output(),
              HasSubstr("--collective=nccl: NCCL does not work between the"));
  EXPECT_THAT(job->Output(), HasSubstr("failpoint collective.nccl.init"));
}

TEST_F(NcclTest, CpuIsRefused) {
  const auto job = StartJob(1, {"--device=cpu", "--collective=nccl"});
  EXPECT_EQ(job->Wait(), 2);
  EXPECT_THAT(job->Output(), HasSubstr("--collective=nccl is for GPUs"));
}

}  // namespace
}  // namespace elasticdl::test
