// Jobs on a real cluster that cannot run: each must say why, and not go on for
// ever. See job_fixture.h for what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// No registry answers there.
constexpr char kNoImage[] = "localhost:1/elasticdl/no-such-image:1";

class JobTroubleTest : public KubeJobTest {
 protected:
  void StopAndExpectNothing(const std::string& job) {
    const Outcome stopped = Elasticdl("stop", {"--job_name=" + job});
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_TRUE(pods().WaitUntil(
        [](const PodBoard::PodMap& pods) { return pods.empty(); }));
    EXPECT_TRUE(WaitGone(Secrets(), "elasticdl-job-" + job));
    EXPECT_TRUE(WaitGone(Services(), "elasticdl-master-" + job));
  }
};

TEST_F(JobTroubleTest, ImageOfTheMasterCannotBePulled) {
  GrantRights();
  const auto job = Train("no-image", {absl::StrCat("--image=", kNoImage)});
  ASSERT_TRUE(WaitForLine(job->client().err_path(), "ImagePull"))
      << job->Output();
  EXPECT_THAT(job->Output(),
              AnyOf(HasSubstr("ErrImagePull"), HasSubstr("ImagePullBackOff")));
  const Outcome top = Elasticdl("top", {"--job_name=no-image", "--json"});
  EXPECT_EQ(top.exit_code, 1);
  EXPECT_THAT(top.err,
              AnyOf(HasSubstr("ErrImagePull"), HasSubstr("ImagePullBackOff")));
  EXPECT_THAT(Elasticdl("list", {}).out, HasSubstr("no-image"));
  job->client().Signal(SIGINT);
  EXPECT_EQ(job->Wait(kPatience), 128 + SIGINT) << job->Output();
  StopAndExpectNothing("no-image");
}

TEST_F(JobTroubleTest, ImageOfAWorkerCannotBePulled) {
  GrantRights();
  const Json spec = {
      {"worker_pod_spec", {{"container", {{"image", kNoImage}}}}}};
  const auto job =
      Train("no-worker-image",
            {"--num_workers=1", "--cluster_spec_json=" + spec.dump()});
  ASSERT_TRUE(WaitForLine(job->client().out_path(), "ImagePull"))
      << job->Output();
  EXPECT_TRUE(TopShows(
      "no-worker-image",
      AnyOf(HasSubstr("ErrImagePull"), HasSubstr("ImagePullBackOff"))));
  const Outcome stopped = Elasticdl("stop", {"--job_name=no-worker-image"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_NE(job->Wait(kPatience), -1) << job->Output();
  // The first call ended the job, this one removes it.
  StopAndExpectNothing("no-worker-image");
}

TEST_F(JobTroubleTest, WorkerWithoutMemoryFailsTheJob) {
  GrantRights();
  const auto job =
      Train("oom", {"--num_workers=1",
                    "--worker_resource_request=cpu=100m,memory=16Mi",
                    "--worker_resource_limit=cpu=1,memory=32Mi"});
  EXPECT_EQ(job->Wait(absl::Seconds(180)), 1) << job->Output();
  EXPECT_THAT(job->Output(), AllOf(HasSubstr("OOMKilled"),
                                   HasSubstr("--relaunch_on_worker_failure"),
                                   HasSubstr("job oom failed")));
  const Json master = pods().WaitForPod(
      job->Master(), [](const Json& pod) { return HasPhase(pod, "Failed"); });
  ASSERT_FALSE(master.is_null());
  EXPECT_LE(
      NumberAt(ListAt(master, "/status/containerStatuses")[0], "/restartCount"),
      1);
  EXPECT_EQ(TextAt(master, "/metadata/annotations/elasticdl~1outcome"),
            "failed");
  EXPECT_THAT(Elasticdl("list", {}).out, testing::ContainsRegex("oom +failed"));
}

TEST_F(JobTroubleTest, MissingRightsAreNamedAndGranted) {
  const auto refused = Train("rights", {"--num_epochs=1", "--num_workers=1"});
  ASSERT_TRUE(WaitForLine(refused->client().out_path(), "elasticdl rbac"))
      << refused->Output();
  EXPECT_THAT(
      refused->Output(),
      AllOf(HasSubstr("cannot get resource \"pods\""),
            HasSubstr("elasticdl rbac --apply --namespace=" + space())));
  // The job begins as soon as it may.
  GrantRights();
  EXPECT_EQ(refused->Wait(absl::Seconds(180)), 0) << refused->Output();
  EXPECT_TRUE(LedgerIsExact(refused->audit(), 1));
}

}  // namespace
}  // namespace elasticdl::kube::test
