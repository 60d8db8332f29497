// Jobs on a real cluster that cannot run: each must say why, and not go on for
// ever. See job_fixture.h for what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
  // The file that `elasticdl train --yaml` writes; nothing is checked with the
  // cluster then.
  std::string WriteYaml(const std::string& job, const Flags& more) {
    Flags flags = TrainFlags(job, more);
    const std::string file = Path(job + ".yaml");
    flags.push_back("--yaml=" + file);
    const Outcome written = Elasticdl("train", flags);
    EXPECT_EQ(written.exit_code, 0) << written.err;
    return file;
  }
  Outcome Apply(const std::string& file) {
    return Run({"kubectl", "apply", "-f", file});
  }
  void ApplyYaml(const std::string& job, const Flags& more) {
    const Outcome applied = Apply(WriteYaml(job, more));
    ASSERT_EQ(applied.exit_code, 0) << applied.err;
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
  // One call ends the job and removes it.
  StopAndExpectNothing("no-worker-image");
  EXPECT_EQ(job->Wait(kPatience), 1) << job->Output();
  EXPECT_THAT(job->Output(), HasSubstr("job no-worker-image stopped"));
}

TEST_F(JobTroubleTest, TopShowsTheSchedulersWords) {
  GrantRights();
  const auto job =
      Train("big", {"--num_workers=1",
                    "--worker_resource_request=cpu=1000,memory=64Mi",
                    "--worker_resource_limit=cpu=1000,memory=64Mi"});
  ASSERT_TRUE(WaitForLine(job->client().out_path(), "Insufficient cpu"))
      << job->Output();
  EXPECT_TRUE(TopShows("big", HasSubstr("Insufficient cpu")));
  EXPECT_THAT(Elasticdl("top", {"--job_name=big"}).out,
              testing::ContainsRegex("big-0 .*Pending: .*Insufficient cpu"));
  StopAndExpectNothing("big");
}

TEST_F(JobTroubleTest, EndOfTheMasterPodIsTheEndOfTheJob) {
  GrantRights();
  for (const bool running : {true, false}) {
    const std::string name = running ? "running" : "ended";
    const auto job =
        Train(name, {running ? "--num_epochs=1000" : "--num_epochs=1",
                     "--num_workers=1", running ? kPaced : "--max_step=5"});
    if (running) {
      ASSERT_FALSE(job->WaitForWorld(1).is_null()) << job->Output();
    } else {
      ASSERT_EQ(job->Wait(kPatience), 0) << job->Output();
      EXPECT_THAT(job->Output(), HasSubstr("its pods stay for their logs"));
    }
    ASSERT_TRUE(client().Delete(Pods(), job->Master()).ok());
    EXPECT_TRUE(pods().WaitUntil(
        [](const PodBoard::PodMap& pods) { return pods.empty(); }));
    EXPECT_TRUE(WaitGone(Secrets(), "elasticdl-job-" + name));
    EXPECT_TRUE(WaitGone(Services(), job->Master()));
    if (!running) continue;
    EXPECT_EQ(job->Wait(kPatience), 1) << job->Output();
    EXPECT_THAT(job->Output(),
                AllOf(HasSubstr("its master pod is deleted, and with it all"),
                      testing::Not(HasSubstr("stay for their logs"))));
  }
}

TEST_F(JobTroubleTest, StoppedMasterIsCompleted) {
  GrantRights();
  const auto job =
      Train("halt", {"--num_epochs=1000", "--num_workers=1", kPaced});
  ASSERT_FALSE(job->WaitForWorld(1).is_null()) << job->Output();
  const Outcome stopped = Elasticdl("stop", {"--job_name=halt", "--keep_pods"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(job->Wait(kPatience), 1) << job->Output();
  const Json master = pods().WaitForPod(job->Master(), [](const Json& pod) {
    return HasPhase(pod, "Succeeded");
  });
  ASSERT_FALSE(master.is_null());
  EXPECT_EQ(TextAt(master, "/status/reason"), "");
  EXPECT_EQ(TextAt(master, "/metadata/annotations/elasticdl~1outcome"),
            "stopped");
  EXPECT_THAT(Elasticdl("list", {}).out,
              testing::ContainsRegex("halt +stopped"));
  StopAndExpectNothing("halt");
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

TEST_F(JobTroubleTest, ClientRefusesAJobWhoseMasterHasNoRights) {
  const auto refused = Train("rights", {"--num_epochs=1", "--num_workers=1"});
  EXPECT_EQ(refused->Wait(kPatience), 1) << refused->Output();
  EXPECT_THAT(
      refused->Output(),
      AllOf(HasSubstr("service account default, which may not create"),
            HasSubstr("elasticdl rbac --namespace=" + space() + " --apply")));
  EXPECT_TRUE(pods().Now().empty());
}

TEST_F(JobTroubleTest, MasterWithoutRightsNamesThemAndBeginsWhenGranted) {
  ApplyYaml("rights", {"--num_epochs=1", "--num_workers=1"});
  const auto log =
      Submit("logs", "rights", {"--job_name=rights", "--follow", "master"});
  ASSERT_TRUE(WaitForLine(log->client().out_path(), "elasticdl rbac"))
      << log->Output();
  EXPECT_THAT(
      log->Output(),
      AllOf(HasSubstr("service account default may not get pods"),
            HasSubstr("elasticdl rbac --namespace=" + space() + " --apply")));
  GrantRights();
  EXPECT_EQ(log->Wait(absl::Seconds(180)), 0) << log->Output();
  EXPECT_TRUE(LedgerIsExact(log->audit(), 1));
}

TEST_F(JobTroubleTest, ReadOnlyMasterNamesTheCureOnce) {
  const Outcome viewer =
      Run({"kubectl", "create", "rolebinding", "viewer", "--clusterrole=view",
           "--serviceaccount=" + space() + ":default", "-n", space()});
  ASSERT_EQ(viewer.exit_code, 0) << viewer.err;
  ApplyYaml("readonly", {"--num_epochs=1", "--num_workers=1"});
  const auto log =
      Submit("logs", "readonly", {"--job_name=readonly", "--follow", "master"});
  ASSERT_TRUE(WaitForLine(log->client().out_path(), "try 4")) << log->Output();
  const std::vector<std::string> parts =
      absl::StrSplit(log->Output(), "may not create pods");
  EXPECT_EQ(parts.size(), 2u) << log->Output();
  EXPECT_THAT(log->Output(),
              HasSubstr("elasticdl rbac --namespace=" + space() + " --apply"));
  GrantRights();
  EXPECT_EQ(log->Wait(absl::Seconds(180)), 0) << log->Output();
  EXPECT_TRUE(LedgerIsExact(log->audit(), 1));
}

// `elasticdl train --yaml=- | kubectl apply -f -` once more is no harm to the
// job that runs.
TEST_F(JobTroubleTest, SecondApplyLeavesTheTokenAlone) {
  GrantRights();
  const Flags flags = {"--num_epochs=1000", "--num_workers=1", kPaced};
  const std::string file = WriteYaml("twice", flags);
  ASSERT_EQ(Apply(file).exit_code, 0);
  const auto job =
      Submit("logs", "twice", {"--job_name=twice", "--follow", "master"});
  ASSERT_FALSE(job->WaitForWorld(1).is_null()) << job->Output();
  const auto before = client().Get(Secrets(), "elasticdl-job-twice");
  ASSERT_TRUE(before.ok()) << before.status();
  const Outcome same = Apply(file);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  // Another token, as of a second `elasticdl train --yaml`.
  const Outcome again = Apply(WriteYaml("twice", flags));
  EXPECT_NE(again.exit_code, 0) << again.out;
  EXPECT_THAT(again.err, HasSubstr("immutable"));
  const auto after = client().Get(Secrets(), "elasticdl-job-twice");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ((*after)["data"], (*before)["data"]);
  // A worker that comes now is let in.
  ASSERT_TRUE(
      client().Delete(Pods(), job->Worker(0), absl::ZeroDuration()).ok());
  EXPECT_FALSE(job->WaitForWorld(1).is_null()) << job->Output();
  EXPECT_TRUE(TopShows("twice", HasSubstr("\"state\":\"running\"")));
  StopAndExpectNothing("twice");
}

}  // namespace
}  // namespace elasticdl::kube::test
