// What the design of the original's client promises its user, command by
// command: zoo init, build and push, then a job with a parameter server. See
// job_fixture.h for what this needs, and cli/zoo_kube_test.cc for the engine
// and ELASTICDL_BASE_IMAGE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Compiling a model, pulling its image, and 38 evaluations with one worker.
constexpr absl::Duration kLong = absl::Minutes(8);

class JobSeedTest : public KubeJobTest {
 protected:
  void SetUp() override {
    const char* base = std::getenv("ELASTICDL_BASE_IMAGE");
    if (base == nullptr) GTEST_SKIP() << "no ELASTICDL_BASE_IMAGE";
    base_ = base;
    KubeJobTest::SetUp();
    if (IsSkipped() || HasFailure()) return;
    GrantRights();
    MakeRepository();
  }

  // my_model_repo with layers, models, utils and requirements.txt. The data is
  // MNIST, so the model is one for it.
  void MakeRepository() {
    for (const char* folder : {"layers", "models", "utils"}) {
      ASSERT_TRUE(
          MakeDirectories(Path(absl::StrCat("zoo/my_model_repo/", folder)))
              .ok());
    }
    ASSERT_TRUE(
        WriteFileAtomic(Path("zoo/my_model_repo/requirements.txt"), "").ok());
    std::error_code error;
    std::filesystem::copy(
        JoinPath(ELASTICDL_SOURCE_DIR, "examples/mnist/mlp.cc"),
        Path("zoo/my_model_repo/models/wnd.cc"), error);
    ASSERT_FALSE(error) << error.message();
  }
  // `elasticdl zoo …` in the folder of the repository.
  void Zoo(const Flags& args, const std::string& words) {
    Flags argv = {"env", "-C", Path("zoo"), ELASTICDL_PROGRAM, "zoo"};
    argv.insert(argv.end(), args.begin(), args.end());
    const Outcome outcome = Run(argv, kLong);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(words));
  }

  std::string base_;
};

TEST_F(JobSeedTest, FromTheRepositoryToAModel) {
  // The registry is the test's own.
  const std::string image = absl::StrCat(base_.substr(0, base_.rfind('/')),
                                         "/bright/elasticdl-wnd:1.0");
  ASSERT_NO_FATAL_FAILURE(Zoo({"init", "--base_image=" + base_}, "Dockerfile"));
  ASSERT_NO_FATAL_FAILURE(
      Zoo({"build", "--image=" + image, "."}, "Built " + image));
  ASSERT_NO_FATAL_FAILURE(Zoo({"push", image}, "Pushed " + image));
  const auto job = Submit(
      "train", "test-mnist",
      {"--image=" + image, "--model_def=my_model_repo.models.wnd.custom_model",
       "--training_data=/data/mnist/train",
       "--validation_data=/data/mnist/test", "--num_epochs=2",
       "--minibatch_size=64", "--num_minibatches_per_task=2", "--num_ps_pods=1",
       "--num_workers=1", "--evaluation_steps=50", "--grads_to_wait=1",
       "--job_name=test-mnist",
       "--distribution_strategy=ParameterServerStrategy",
       "--master_resource_request=cpu=0.2,memory=1024Mi",
       "--master_resource_limit=cpu=1,memory=2048Mi",
       "--worker_resource_request=cpu=0.4,memory=1024Mi",
       "--worker_resource_limit=cpu=1,memory=2048Mi",
       "--ps_resource_request=cpu=0.2,memory=1024Mi",
       "--ps_resource_limit=cpu=1,memory=2048Mi",
       // Where the data is, what the test reads, and a place for the server's
       // log that outlives its pod.
       Volumes(), "--event_log=/out/test-mnist.events",
       "--ledger_audit=/out/test-mnist.audit", "--ps_log=/out/ps"});
  const Json evaluation = job->WaitForEvent("evaluation");
  ASSERT_FALSE(evaluation.is_null()) << job->Output();
  // kubectl delete pod elasticdl-ps-test-mnist-0
  ASSERT_TRUE(client().Delete(Pods(), job->Server(0)).ok());
  const Json next = pods().WaitForPod(
      job->Server(0) + "-r1",
      [](const Json& pod) { return HasPhase(pod, "Running"); });
  ASSERT_FALSE(next.is_null()) << job->Output();
  ASSERT_EQ(job->Wait(kLong), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  EXPECT_THAT(job->Output(),
              AllOf(ContainsRegex("evaluation at step [0-9]+: accuracy=0.9"),
                    HasSubstr("job test-mnist succeeded: finished, 120000 "
                              "records trained")));
}

}  // namespace
}  // namespace elasticdl::kube::test
