// Models of examples/ on the test device (tests/gpu/device), where it is
// preloaded: what they learn is what they learn on the CPU, and in smaller
// types nearly so.
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/example_data.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;

class DeviceExamplesTest : public JobTest {
 protected:
  void SetUp() override {
    const char* preloaded = getenv("LD_PRELOAD");
    if (preloaded == nullptr || !absl::StrContains(preloaded, "test_device")) {
      GTEST_SKIP() << "the test device is not preloaded";
    }
  }
  std::unique_ptr<Job> TrainExample(const std::string& name,
                                    const std::string& model,
                                    const Flags& more) {
    Flags flags = {"--model_zoo=" ELASTICDL_EXAMPLES,
                   "--model_def=" + model,
                   "--training_data=" + Path("data"),
                   "--num_workers=1",
                   "--num_threads=1",
                   "--checkpoint_dir=" + Path(name)};
    flags.insert(flags.end(), more.begin(), more.end());
    auto job = Train(name, flags);
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    return job;
  }
  // The models, and the state of their optimizers.
  void ExpectClose(const std::string& first, const std::string& second,
                   double tolerance) {
    const auto diff = Run("diff", {Program("elasticdl"), "ckpt", "diff",
                                   "--json", Path(first), Path(second)});
    ASSERT_LE(diff->Wait().value_or(2), 1) << diff->err();
    for (const Json& difference : Json::parse(diff->out()).at("differences")) {
      if (difference.at("kind") == "ledger") continue;
      ASSERT_TRUE(difference.contains("max_difference")) << difference;
      EXPECT_LE(difference.at("max_difference").get<double>(), tolerance)
          << difference;
    }
  }
  void ExpectTheCpus(const std::string& model, const Flags& flags) {
    for (const char* device : {"cpu", "cuda:0"}) {
      Flags more = flags;
      more.push_back(absl::StrCat("--device=", device));
      TrainExample(device == std::string("cpu") ? "cpu" : "device", model,
                   more);
    }
    ASSERT_THAT(Versions(Path("device")), Versions(Path("cpu")));
    ExpectClose("cpu", "device", 1e-5);
  }
};

TEST_F(DeviceExamplesTest, Cnn) {
  WriteExamples(Path("data"), 96, MakeImage<28, 1>);
  ExpectTheCpus("mnist.mnist_functional_api.custom_model",
                {"--minibatch_size=16"});
}

// With BatchNorm, whose buffers are compared, too.
TEST_F(DeviceExamplesTest, ResNet20) {
  WriteExamples(Path("data"), 16, MakeImage<32, 3>);
  ExpectTheCpus("cifar10.resnet20.custom_model", {"--minibatch_size=8"});
}

// Embeddings and their combiners.
TEST_F(DeviceExamplesTest, DeepFm) {
  WriteExamples(Path("data"), 640, MakeIds);
  ExpectTheCpus("deepfm.deepfm.custom_model", {"--minibatch_size=32"});
}

TEST_F(DeviceExamplesTest, PrecisionsLearnTheSame) {
  WriteExamples(Path("data"), 640, MakeImage<28, 1>);
  WriteExamples(Path("validation"), 200, MakeImage<28, 1>, /*seed=*/6);
  const auto accuracy = [this](const std::string& name, const Flags& more) {
    Flags flags = {"--minibatch_size=32", "--num_epochs=2",
                   "--validation_data=" + Path("validation"),
                   "--evaluation_steps=40"};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto job = TrainExample(name, "mnist.mlp.custom_model", flags);
    return job->Events("evaluation")
        .back()
        .at("metrics")
        .at("accuracy")
        .get<double>();
  };
  const double floats = accuracy("fp32", {"--device=cpu"});
  EXPECT_GT(floats, 0.95);
  EXPECT_NEAR(accuracy("bf16-cpu", {"--device=cpu", "--precision=bf16"}),
              floats, 0.02);
  for (const char* precision : {"bf16", "fp16"}) {
    EXPECT_NEAR(accuracy(precision, {"--device=cuda",
                                     absl::StrCat("--precision=", precision)}),
                floats, 0.02)
        << precision;
  }
  // Two minibatches of half the size are one.
  EXPECT_NEAR(
      accuracy("accumulated", {"--device=cpu", "--minibatch_size=16",
                               "--accumulation_steps=2", "--shuffle=false"}),
      floats, 0.05);
  EXPECT_NEAR(
      accuracy("channels", {"--device=cuda", "--memory_format=channels_last"}),
      floats, 0.02);
}

TEST_F(DeviceExamplesTest, HalfFloatsAreForGpus) {
  WriteExamples(Path("data"), 32, MakeImage<28, 1>);
  const auto job = Train(
      "refused",
      {"--model_zoo=" ELASTICDL_EXAMPLES, "--model_def=mnist.mlp.custom_model",
       "--training_data=" + Path("data"), "--precision=fp16", "--device=cpu"});
  EXPECT_EQ(job->Wait(), 2);
  EXPECT_THAT(job->Output(), HasSubstr("--precision=fp16 is for GPUs"));
}

}  // namespace
}  // namespace elasticdl::test
