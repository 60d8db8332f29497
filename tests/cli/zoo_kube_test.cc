// The whole way with a real engine and a real cluster: zoo init, build, push,
// then a job in that image.
//   ELASTICDL_BASE_IMAGE   the worker image of docker/Dockerfile, in a registry
//                          to which the engine pushes and from which the
//                          cluster pulls
// and an engine with TLS, as docker/real_engine_test.cc says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "kube/real_cluster.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Compiling a model and pulling its image on a busy machine.
constexpr absl::Duration kLong = absl::Minutes(8);

class ZooKubeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = std::getenv("ELASTICDL_BASE_IMAGE");
    if (base == nullptr) GTEST_SKIP() << "no ELASTICDL_BASE_IMAGE";
    base_ = base;
    std::string why;
    cluster_ = kube::test::RealCluster::Find(why);
    if (cluster_ == nullptr) GTEST_SKIP() << why;
    registry_ = base_.substr(0, base_.rfind('/'));
    ASSERT_TRUE(MakeDirectories(dir_.Path("zoo")).ok());
    std::error_code error;
    std::filesystem::copy(JoinPath(ELASTICDL_SOURCE_DIR, "examples/iris"),
                          dir_.Path("zoo/iris"),
                          std::filesystem::copy_options::recursive, error);
    ASSERT_FALSE(error) << error.message();
  }
  // What `elasticdl ARGS…` printed, run in the folder above the zoo.
  std::string Elasticdl(const std::vector<std::string>& args, int code,
                        const std::vector<std::string>& environment = {}) {
    test::ChildProcess::Options options;
    options.environment = environment;
    options.argv = {"env", "-C", dir_.path(), ELASTICDL_PROGRAM};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.log = dir_.Path(absl::StrCat("run", ++runs_));
    test::ChildProcess child(options);
    EXPECT_EQ(child.Wait(kLong).value_or(-1), code)
        << child.out() << child.err();
    return absl::StrCat(child.out(), child.err());
  }

  test::TempDir dir_;
  std::unique_ptr<kube::test::RealCluster> cluster_;
  std::string base_;
  std::string registry_;
  int runs_ = 0;
};

TEST_F(ZooKubeTest, InitBuildPushTrain) {
  const std::string image = absl::StrCat(registry_, "/zoo-kube-test:1");
  Elasticdl({"zoo", "init", "--base_image=" + base_, "--model_zoo=zoo"}, 0);
  EXPECT_THAT(Elasticdl({"zoo", "build", "--image=" + image, "."}, 0),
              HasSubstr("Built " + image));
  EXPECT_THAT(Elasticdl({"zoo", "push", image}, 0),
              HasSubstr("Pushed " + image));
  const std::string space = "--namespace=" + cluster_->namespace_name();
  Elasticdl({"rbac", "--apply", space}, 0);
  const std::string log = Elasticdl(
      {"train", "--image=" + image, "--job_name=zoo", space,
       "--model_zoo=/model_zoo", "--model_def=iris.iris_dnn.custom_model",
       "--training_data=/model_zoo/iris/iris_train.csv", "--num_epochs=2",
       "--minibatch_size=10", "--num_workers=1",
       "--master_resource_request=cpu=50m,memory=128Mi",
       "--worker_resource_request=cpu=50m,memory=256Mi",
       "--worker_resource_limit=cpu=1,memory=1Gi"},
      0);
  EXPECT_THAT(log, HasSubstr("240 records trained"));
  // The image has it compiled.
  EXPECT_THAT(Elasticdl({"logs", "--job_name=zoo", space}, 0),
              Not(HasSubstr("compiling model file")));
}

TEST_F(ZooKubeTest, BuildAndPushOverTls) {
  const char* host = std::getenv("ELASTICDL_TEST_DOCKER_TLS");
  const char* certificates = std::getenv("ELASTICDL_TEST_DOCKER_CERTS");
  if (host == nullptr || certificates == nullptr) {
    GTEST_SKIP() << "ELASTICDL_TEST_DOCKER_TLS or _CERTS is not set";
  }
  const std::vector<std::string> tls = {
      absl::StrCat("DOCKER_HOST=", host), "DOCKER_TLS_VERIFY=1",
      absl::StrCat("DOCKER_CERT_PATH=", certificates)};
  const std::string image = absl::StrCat(registry_, "/zoo-kube-test:tls");
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Dockerfile"),
                              "FROM scratch\nCOPY zoo /model_zoo\n")
                  .ok());
  EXPECT_THAT(Elasticdl({"zoo", "build", "--image=" + image, "."}, 0, tls),
              HasSubstr("Built " + image));
  EXPECT_THAT(Elasticdl({"zoo", "push", image}, 0, tls),
              HasSubstr("Pushed " + image));
  // The same port without certificates.
  EXPECT_THAT(Elasticdl({"zoo", "push", image}, 2,
                        {absl::StrCat("DOCKER_HOST=", host)}),
              HasSubstr("HTTPS"));
}

TEST_F(ZooKubeTest, ModelThatDoesNotCompileFailsTheBuild) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/iris/iris_dnn.cc"),
                              "#error custom_model is not finished\n")
                  .ok());
  Elasticdl({"zoo", "init", "--base_image=" + base_, "--model_zoo=zoo"}, 0);
  const std::string log =
      Elasticdl({"zoo", "build",
                 absl::StrCat("--image=", registry_, "/zoo-kube-test:2"), "."},
                1);
  EXPECT_THAT(log, HasSubstr("#error custom_model is not finished"));
  EXPECT_THAT(log, HasSubstr("elasticdl-compile-zoo"));
}

}  // namespace
}  // namespace elasticdl::cli
