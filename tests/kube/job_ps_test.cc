// Jobs with parameter servers on a real cluster. See job_fixture.h for what
// they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Several epochs on a small machine that others use, too.
constexpr absl::Duration kWholeJob = absl::Minutes(5);

bool IsRunning(const Json& pod) { return HasPhase(pod, "Running"); }

// The container of a pod of a job is the first.
int64_t Restarts(const Json& pod) {
  const Json statuses = ListAt(pod, "/status/containerStatuses");
  return statuses.empty() ? 0 : NumberAt(statuses[0], "/restartCount");
}

class JobPsTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Two servers and two workers, asynchronous; as slow as kPaced.
  std::unique_ptr<KubeJob> TrainWithServers(const std::string& name,
                                            const Flags& more) {
    Flags flags = {"--distribution_strategy=ParameterServerStrategy",
                   "--num_ps_pods=2",
                   "--num_workers=2",
                   "--use_async",
                   "--ps_resource_request=cpu=50m,memory=128Mi",
                   "--ps_resource_limit=cpu=1,memory=1024Mi",
                   "--failpoints=worker.forward=delay(5)"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
  // Both servers hold something, and the master knows.
  void WaitForTraining(KubeJob& job) {
    ASSERT_FALSE(job.WaitForEvent("first_step").is_null());
  }
  // The next pod of this server runs.
  testing::AssertionResult WaitForRunning(const std::string& pod) {
    if (!pods().WaitForPod(pod, IsRunning).is_null()) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << pod << " does not run";
  }
};

TEST_F(JobPsTest, LosesAWorkerAndAServersContainer) {
  const Json spec = {{"ps_pod_spec", Killable("elasticdl-ps")}};
  const auto job = TrainWithServers(
      "servers", {"--num_epochs=6", "--validation_data=/data/mnist/test",
                  "--cluster_spec_json=" + spec.dump()});
  ASSERT_NO_FATAL_FAILURE(WaitForTraining(*job));
  EXPECT_TRUE(TopShows(
      "servers", AllOf(HasSubstr(job->Server(0)), HasSubstr(job->Server(1)))));
  ASSERT_TRUE(client().Delete(Pods(), job->Worker(0)).ok());
  ASSERT_TRUE(WaitForRunning(job->Worker(2)));
  // In its pod it is started again, and finds its log.
  ASSERT_TRUE(KillContainer(job->Server(1)));
  const Json again = pods().WaitForPod(
      job->Server(1), [](const Json& pod) { return Restarts(pod) == 1; });
  ASSERT_FALSE(again.is_null()) << job->Output();
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 6));
  EXPECT_THAT(job->Output(), HasSubstr("started again in its pod"));
  // Servers end by themselves, and their logs can be read.
  for (int id : {0, 1}) {
    const auto pod = client().Get(Pods(), job->Server(id));
    ASSERT_TRUE(pod.ok()) << pod.status();
    EXPECT_TRUE(HasPhase(*pod, "Succeeded")) << pod->dump(1);
  }
  const Outcome logs = Elasticdl("logs", {"--job_name=servers", "ps-1"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_THAT(logs.out, HasSubstr("the master says stop"));
}

TEST_F(JobPsTest, ADeletedServerGoesOnFromItsLogOnAVolume) {
  const auto job =
      TrainWithServers("moved", {"--num_epochs=4", "--ps_log=/out/ps"});
  ASSERT_NO_FATAL_FAILURE(WaitForTraining(*job));
  ASSERT_TRUE(client().Delete(Pods(), job->Server(0)).ok());
  ASSERT_TRUE(WaitForRunning(job->Server(0) + "-r1"));
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 4));
  // The run is over: nobody needs the logs.
  EXPECT_THAT(ListDirectory(JoinPath(out(), "ps/moved"))
                  .value_or(std::vector<std::string>({"?"})),
              testing::IsEmpty());
}

TEST_F(JobPsTest, ServersComeAndGo) {
  const auto job = TrainWithServers("scaled", {"--num_epochs=12"});
  ASSERT_NO_FATAL_FAILURE(WaitForTraining(*job));
  const auto scale = [&](int servers) {
    const Outcome scaled = Elasticdl(
        "scale",
        {"--job_name=scaled", absl::StrCat("--num_ps_pods=", servers)});
    EXPECT_EQ(scaled.exit_code, 0) << scaled.err;
    return job->WaitForEvent("ps_scaled", [servers](const Json& event) {
      return NumberAt(event, "/servers") == servers;
    });
  };
  ASSERT_FALSE(scale(3).is_null()) << job->Output();
  EXPECT_TRUE(WaitForRunning(job->Server(2)));
  ASSERT_FALSE(scale(1).is_null()) << job->Output();
  EXPECT_TRUE(WaitGone(Pods(), job->Server(1)));
  EXPECT_TRUE(WaitGone(Pods(), job->Server(2)));
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 12));
}

TEST_F(JobPsTest, AServerLostWithItsLogFailsTheJob) {
  const auto job = TrainWithServers("lost", {"--num_epochs=20"});
  ASSERT_NO_FATAL_FAILURE(WaitForTraining(*job));
  ASSERT_TRUE(client().Delete(Pods(), job->Server(1)).ok());
  EXPECT_EQ(job->Wait(kWholeJob), 1) << job->Output();
  EXPECT_THAT(job->Output(),
              AllOf(HasSubstr("parameter server 1 came back with version 0"),
                    HasSubstr("--ps_log=DIR")));
}

}  // namespace
}  // namespace elasticdl::kube::test
