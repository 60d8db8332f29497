// Jobs on a real cluster that lose workers or their master, by deletion and by
// SIGKILL. Each must go on and train every record of every epoch once. See
// job_fixture.h for what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tens of epochs on a small machine that others use, too.
constexpr absl::Duration kWholeJob = absl::Minutes(5);

bool IsRunning(const Json& pod) { return HasPhase(pod, "Running"); }

class JobElasticTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Deletes worker `id` of two; `id` + 1 trains on, `id` + 2 comes and joins.
  void LoseAWorker(KubeJob& job, int id, absl::Duration grace) {
    const double deleted =
        absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    ASSERT_TRUE(client().Delete(Pods(), job.Worker(id), grace).ok());
    const Json alone = job.WaitForWorld(1);
    ASSERT_FALSE(alone.is_null());
    EXPECT_EQ(alone["members"], Json::array({id + 1}));
    const Json step = job.WaitForFirstStep(alone);
    const Json together = job.WaitForWorld(2);
    ASSERT_FALSE(together.is_null());
    EXPECT_EQ(together["members"], Json::array({id + 1, id + 2}));
    // The kubelet may tell that it runs when it is a member already.
    const Json started = job.WaitForEvent(
        "pod_started", [&](const Json& pod) { return pod["id"] == id + 2; });
    const Json fresh = pods().WaitForPod(job.Worker(id + 2), IsRunning);
    absl::Time created;
    std::string error;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full,
                                TextAt(fresh, "/metadata/creationTimestamp"),
                                &created, &error))
        << error;
    const double creation = absl::ToDoubleSeconds(created - absl::UnixEpoch());
    printf(
        "measured: deleted %s grace: the survivor's next step %.3f s after the "
        "delete (pause %.1f ms); new pod: member %.1f s after its creation, "
        "%.3f s after it was known to run\n",
        grace < absl::ZeroDuration() ? "with" : "without",
        TimeOf(step) - deleted, alone.value("pause_ms", 0.0),
        TimeOf(together) - creation, TimeOf(together) - TimeOf(started));
  }
};

TEST_F(JobElasticTest, DeletedWorkersAreReplaced) {
  const auto job =
      Train("deleted", {"--num_epochs=20", "--num_workers=2", kPaced,
                        "--validation_data=/data/mnist/test"});
  ASSERT_FALSE(job->WaitForWorld(2).is_null());
  ASSERT_NO_FATAL_FAILURE(LoseAWorker(*job, 0, absl::Seconds(-1)));
  ASSERT_NO_FATAL_FAILURE(LoseAWorker(*job, 1, absl::ZeroDuration()));
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 20));
  for (int id : {2, 3}) {
    EXPECT_THAT(Log(job->Worker(id)), Not(HasSubstr("restored ")));
  }
}

TEST_F(JobElasticTest, KilledMasterGoesOn) {
  const Json spec = {{"master_pod_spec", Killable("elasticdl-master")}};
  const auto job =
      Train("killed-master", {"--num_epochs=6", "--num_workers=2", kPaced,
                              "--validation_data=/data/mnist/test",
                              "--cluster_spec_json=" + spec.dump()});
  const Json before = job->WaitForWorld(2);
  ASSERT_FALSE(before.is_null());
  ASSERT_FALSE(job->WaitForFirstStep(before).is_null());
  ASSERT_TRUE(KillContainer(job->Master()));
  const Json after = job->WaitForWorld(2);
  ASSERT_FALSE(after.is_null());
  EXPECT_EQ(after["cause"], "the master was restarted");
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 6));
  EXPECT_THAT(ReadFile(job->audit()).value_or(""), Not(HasSubstr("cut_back")));
  const auto master = client().Get(Pods(), job->Master());
  ASSERT_TRUE(master.ok()) << master.status();
  EXPECT_EQ(NumberAt(ListAt(*master, "/status/containerStatuses")[0],
                     "/restartCount"),
            1);
  printf("measured: killed master: the workers' world was paused for %.1f ms\n",
         after.value("pause_ms", 0.0));
  for (int id : {0, 1}) {
    EXPECT_THAT(Log(job->Worker(id)), Not(HasSubstr("restored ")));
  }
}

}  // namespace
}  // namespace elasticdl::kube::test
