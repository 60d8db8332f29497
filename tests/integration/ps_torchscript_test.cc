// A TorchScript file is trained with parameter servers as on one machine.
#include <torch/script.h>

#include <string>

#include "gmock/gmock.h"
#include "integration/example_data.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using testing::ElementsAre;

class PsTorchScriptTest : public JobTest {
 protected:
  // Two layers; the first has more values than a server takes as one piece.
  void SaveModule() {
    torch::jit::Module module("Net");
    torch::manual_seed(1);
    const auto add = [&](const char* name, const torch::Tensor& values) {
      module.register_parameter(name, values.set_requires_grad(true), false);
    };
    add("w1", torch::randn({784, 32}) * 0.01);
    add("b1", torch::zeros({32}));
    add("w2", torch::randn({32, 10}) * 0.1);
    add("b2", torch::zeros({10}));
    module.define(R"(
def forward(self, x):
    hidden = torch.relu(torch.matmul(torch.flatten(x, 1), self.w1) + self.b1)
    return torch.matmul(hidden, self.w2) + self.b2
)");
    module.save(Path("net.pt"));
  }
  void TrainModule(const std::string& name, const Flags& more) {
    Flags flags = {"--model_zoo=" + dir(),
                   "--model_def=net.pt",
                   "--loss=cross_entropy",
                   "--optimizer=Adam(lr=0.01,global_clipnorm=1)",
                   "--feed=image_classification(shape=1x28x28)",
                   "--training_data=" + Path("data"),
                   "--validation_data=" + Path("data"),
                   "--num_workers=1",
                   "--num_epochs=2",
                   "--minibatch_size=32",
                   "--checkpoint_dir=" + Path(name),
                   "--output=" + Path(name + "-out")};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto job = Train(name, flags);
    ASSERT_EQ(job->Wait(), 0) << job->Output();
    const Json metrics = job->Events("evaluation").back().at("metrics");
    EXPECT_GT(metrics.at("accuracy"), 0.5) << job->Output();
  }
};

TEST_F(PsTorchScriptTest, SameAsOnOneMachine) {
  WriteExamples(Path("data"), 640, MakeImage<28, 1>);
  SaveModule();
  TrainModule("local", {"--distribution_strategy=Local"});
  TrainModule("servers", {"--distribution_strategy=ParameterServerStrategy",
                          "--num_ps_pods=2"});
  const auto diff = Run("diff", {Program("elasticdl"), "ckpt", "diff",
                                 Path("local"), Path("servers")});
  EXPECT_EQ(diff->Wait(), 0) << diff->out() << diff->err();
  // What is exported is TorchScript again, with the trained values.
  EXPECT_THAT(List(Path("servers-out")),
              ElementsAre("model.pt", "state_dict.pt"));
  const torch::jit::Module first = torch::jit::load(Path("local-out/model.pt"));
  const torch::jit::Module second =
      torch::jit::load(Path("servers-out/model.pt"));
  torch::jit::Module untrained = torch::jit::load(Path("net.pt"));
  for (const char* name : {"w1", "b1", "w2", "b2"}) {
    const torch::Tensor trained = second.attr(name).toTensor();
    EXPECT_TRUE(torch::equal(first.attr(name).toTensor(), trained)) << name;
    EXPECT_FALSE(torch::equal(untrained.attr(name).toTensor(), trained));
  }
}

}  // namespace
}  // namespace elasticdl::test
