// Whole jobs on a real cluster, from submission to removal: training with the
// commands that look at it, evaluation, prediction, a manifest for kubectl, a
// claim as volume. See job_fixture.h for what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// A job of a few epochs, with pods to be started.
constexpr absl::Duration kWholeJob = absl::Seconds(180);

class JobTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Labels and owner of what a job consists of.
  void ExpectObjects(KubeJob& job, int workers) {
    const auto master = client().Get(Pods(), job.Master());
    ASSERT_TRUE(master.ok()) << master.status();
    const std::string uid = TextAt(*master, "/metadata/uid");
    ExpectLabels(*master, job.name(), "master");
    std::vector<std::pair<Resource, std::string>> owned = {
        {Secrets(), "elasticdl-job-" + job.name()}, {Services(), job.Master()}};
    for (int id = 0; id < workers; ++id) {
      owned.emplace_back(Pods(), job.Worker(id));
    }
    for (const auto& [resource, name] : owned) {
      const auto object = client().Get(resource, name);
      ASSERT_TRUE(object.ok()) << object.status();
      ExpectLabels(*object, job.name(),
                   resource.plural == "pods" ? "worker" : "");
      const Json& owners = ListAt(*object, "/metadata/ownerReferences");
      ASSERT_EQ(owners.size(), 1u) << name;
      EXPECT_EQ(TextAt(owners[0], "/uid"), uid) << name;
    }
  }
  static void ExpectLabels(const Json& object, const std::string& job,
                           const std::string& type) {
    const Json labels =
        object.value(Json::json_pointer("/metadata/labels"), Json());
    EXPECT_EQ(TextAt(labels, "/elasticdl_job_name"), job) << labels;
    EXPECT_EQ(TextAt(labels, "/elasticdl-job-name"), job) << labels;
    EXPECT_EQ(TextAt(labels, "/app"), "elasticdl") << labels;
    EXPECT_EQ(TextAt(labels, "/elasticdl-replica-type"), type) << labels;
  }
  bool WaitForPhase(const std::string& pod, const std::string& phase) {
    return !pods()
                .WaitForPod(
                    pod,
                    [&](const Json& json) { return HasPhase(json, phase); })
                .is_null();
  }
};

TEST_F(JobTest, HelloWorld) {
  const auto job = Train("hello-world", {"--validation_data=/data/mnist/test",
                                         "--num_epochs=1", "--num_workers=2"});
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_THAT(job->Output(),
              AllOf(ContainsRegex("evaluation at step [0-9]+: accuracy=0.9"),
                    HasSubstr("job hello-world succeeded: finished, 60000 "
                              "records trained")));
  for (const std::string& pod :
       {job->Master(), job->Worker(0), job->Worker(1)}) {
    EXPECT_TRUE(WaitForPhase(pod, "Succeeded")) << pod;
  }
  ExpectObjects(*job, 2);
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  EXPECT_THAT(Elasticdl("list", {}).out,
              ContainsRegex("hello-world +succeeded"));
  // An ended job is removed with all that belongs to it.
  const Outcome removed = Elasticdl("stop", {"--job_name=hello-world"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_TRUE(pods().WaitUntil(
      [](const PodBoard::PodMap& pods) { return pods.empty(); }));
}

TEST_F(JobTest, CommandsOnARunningJob) {
  // Far longer than the test looks at it.
  const auto job = Train("long", {"--num_epochs=1000", "--num_workers=1"});
  ASSERT_FALSE(job->WaitForWorld(1).is_null());
  ASSERT_TRUE(WaitForPhase(job->Master(), "Running"));
  EXPECT_THAT(Elasticdl("list", {}).out, ContainsRegex("long +running"));
  const Flags name = {"--job_name=long"};
  const Outcome top = Elasticdl("top", {"--job_name=long", "--json"});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  const Json status = Json::parse(top.out, nullptr, false);
  EXPECT_EQ(TextAt(status, "/job"), "long") << top.out;
  EXPECT_THAT(Elasticdl("logs", {"--job_name=long", "master"}).out,
              HasSubstr("generation 1: 1 worker"));
  // The kubelet has logs of pods that it knows to run.
  ASSERT_TRUE(WaitForPhase(job->Worker(0), "Running"));
  const Outcome worker_log = Elasticdl("logs", {"--job_name=long", "0"});
  EXPECT_EQ(worker_log.exit_code, 0) << worker_log.err;
  EXPECT_FALSE(worker_log.out.empty());

  const Outcome scaled =
      Elasticdl("scale", {"--job_name=long", "--num_workers=2"});
  EXPECT_EQ(scaled.exit_code, 0) << scaled.err;
  ASSERT_FALSE(job->WaitForWorld(2).is_null());
  EXPECT_TRUE(WaitForPhase(job->Worker(1), "Running"));
  EXPECT_TRUE(TopShows("long", HasSubstr(job->Worker(1))));
  EXPECT_THAT(Elasticdl("top", name).out, HasSubstr(job->Worker(1)));

  const Outcome stopped = Elasticdl("stop", name);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(job->Wait(kPatience), 1) << job->Output();
  EXPECT_THAT(job->Output(), HasSubstr("asked by elasticdl stop"));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1000, {"--partial"}));
  for (int id : {0, 1}) {
    EXPECT_TRUE(pods().WaitUntil([&](const PodBoard::PodMap& pods) {
      const auto found = pods.find(job->Worker(id));
      return found == pods.end() || !HasPhase(found->second, "Running");
    })) << id;
  }
}

TEST_F(JobTest, EvaluationAndPrediction) {
  const auto train =
      Train("with-checkpoint",
            {"--num_epochs=1", "--num_workers=1", "--checkpoint_steps=200",
             "--checkpoint_dir=/out/c", "--keep_checkpoint_max=2"});
  ASSERT_EQ(train->Wait(kWholeJob), 0) << train->Output();
  EXPECT_TRUE(LedgerIsExact(train->audit(), 1));

  const auto evaluate =
      Submit("evaluate", "eval",
             JobFlags("eval",
                      {"--validation_data=/data/mnist/test",
                       "--checkpoint_dir_for_init=/out/c", "--num_workers=1"}));
  ASSERT_EQ(evaluate->Wait(kWholeJob), 0) << evaluate->Output();
  EXPECT_THAT(evaluate->Output(), ContainsRegex("accuracy=0.9"));

  const auto predict =
      Submit("predict", "predictions",
             JobFlags("predictions",
                      {"--prediction_data=/data/mnist/test",
                       "--checkpoint_dir_for_init=/out/c",
                       "--prediction_output_dir=/out/p", "--num_workers=1"}));
  ASSERT_EQ(predict->Wait(kWholeJob), 0) << predict->Output();
  const Outcome lines =
      Run({"sh", "-c", absl::StrCat("cat ", out(), "/p/* | wc -l")});
  int64_t count = 0;
  EXPECT_TRUE(absl::SimpleAtoi(lines.out, &count) && count >= 10000)
      << lines.out << lines.err;
}

TEST_F(JobTest, ManifestForKubectl) {
  if (Run({"sh", "-c", "command -v kubectl"}).exit_code != 0) {
    GTEST_SKIP() << "no kubectl in the PATH";
  }
  const std::string file = Path("job.yaml");
  const Outcome written = Elasticdl(
      "train", TrainFlags("by-kubectl", {"--num_epochs=1", "--num_workers=1",
                                         "--yaml=" + file}));
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const Outcome applied = Run({"kubectl", "apply", "-n", space(), "-f", file});
  ASSERT_EQ(applied.exit_code, 0) << applied.err;
  ASSERT_TRUE(WaitForPhase("elasticdl-master-by-kubectl", "Succeeded"));
  EXPECT_TRUE(LedgerIsExact(JoinPath(out(), "by-kubectl.audit"), 1));

  // The master made the other objects its own.
  ASSERT_TRUE(client().Delete(Pods(), "elasticdl-master-by-kubectl").ok());
  EXPECT_TRUE(pods().WaitUntil(
      [](const PodBoard::PodMap& pods) { return pods.empty(); }));
  for (const auto& [resource, name] :
       {std::pair(Secrets(), "elasticdl-job-by-kubectl"),
        std::pair(Services(), "elasticdl-master-by-kubectl")}) {
    EXPECT_TRUE(WaitGone(resource, name)) << name;
  }
}

// The demo as it is, but for the image and the namespace. Its model is compiled
// in the pods.
TEST_F(JobTest, DemoManifest) {
  if (Run({"sh", "-c", "command -v kubectl"}).exit_code != 0) {
    GTEST_SKIP() << "no kubectl in the PATH";
  }
  const absl::StatusOr<std::string> text =
      ReadFile(ELASTICDL_SOURCE_DIR "/kube/manifests/k8s-demo.yaml");
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string file = Path("demo.yaml");
  ASSERT_TRUE(
      WriteFileAtomic(
          file, absl::StrReplaceAll(
                    *text, {{"registry.example.com/elasticdl:dev", image()},
                            {"namespace: default",
                             absl::StrCat("namespace: ", space())}}))
          .ok());
  const Outcome applied = Run({"kubectl", "apply", "-f", file});
  ASSERT_EQ(applied.exit_code, 0) << applied.err;
  const Json demo = pods().WaitForPod(
      "elasticdl-demo",
      [](const Json& pod) {
        return HasPhase(pod, "Succeeded") || HasPhase(pod, "Failed");
      },
      absl::Seconds(400));
  EXPECT_TRUE(HasPhase(demo, "Succeeded")) << Log("elasticdl-demo");
  EXPECT_THAT(Log("elasticdl-demo"),
              AllOf(HasSubstr("job demo succeeded: finished, 120000 records"),
                    HasSubstr("accuracy=")));
  const Outcome removed = Run({"kubectl", "delete", "-f", file});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
}

TEST_F(JobTest, ClaimAsVolume) {
  const std::string volume = "elasticdl-test-" + space();
  const Json size = {{"storage", "1Gi"}};
  const Json modes = Json::array({"ReadWriteMany"});
  const auto made =
      client().Create({"", "v1", "persistentvolumes", false},
                      {{"apiVersion", "v1"},
                       {"kind", "PersistentVolume"},
                       {"metadata", {{"name", volume}}},
                       {"spec",
                        {{"capacity", size},
                         {"accessModes", modes},
                         {"storageClassName", volume},
                         {"persistentVolumeReclaimPolicy", "Retain"},
                         {"hostPath", {{"path", data()}}}}}});
  if (absl::IsPermissionDenied(made.status())) {
    GTEST_SKIP() << made.status();
  }
  ASSERT_TRUE(made.ok()) << made.status();
  AtEnd([this, volume] {
    client()
        .Delete({"", "v1", "persistentvolumes", false}, volume)
        .IgnoreError();
  });
  const auto claimed =
      client().Create({"", "v1", "persistentvolumeclaims", true},
                      {{"apiVersion", "v1"},
                       {"kind", "PersistentVolumeClaim"},
                       {"metadata", {{"name", "data"}}},
                       {"spec",
                        {{"accessModes", modes},
                         {"storageClassName", volume},
                         {"volumeName", volume},
                         {"resources", {{"requests", size}}}}}});
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  const auto job =
      Train("claim", {"--num_epochs=1", "--num_workers=1",
                      absl::StrCat("--volume=claim_name=data,mount_path=/data;",
                                   "host_path=", out(), ",mount_path=/out")});
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
}

}  // namespace
}  // namespace elasticdl::kube::test
