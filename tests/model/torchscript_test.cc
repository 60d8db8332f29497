// TorchScript files train with built-in functions and are exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include "elasticdl/common/file.h"
#include "elasticdl/data/example.h"
#include "elasticdl/model/loader.h"
#include "support/temp_dir.h"

namespace elasticdl::model {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

class TorchScriptTest : public ::testing::Test {
 protected:
  TorchScriptTest() {
    options_.model_zoo = dir_.path();
    options_.model_def = "net.pt";
    options_.loss = "cross_entropy";
    options_.optimizer = "SGD(lr=0.1,momentum=0.9)";
    options_.feed = "image_classification(shape=4)";
  }
  // A module with parameters w (4, 3) and b (3), and this forward.
  void Save(const std::string& forward) {
    torch::jit::Module module("Net");
    torch::manual_seed(1);
    module.register_parameter("w", torch::randn({4, 3}, torch::requires_grad()),
                              false);
    module.register_parameter("b", torch::zeros({3}, torch::requires_grad()),
                              false);
    module.define(forward);
    module.save(dir_.Path("net.pt"));
  }
  std::string Message() {
    return std::string(Load(options_).status().message());
  }

  test::TempDir dir_;
  LoadOptions options_;
};

constexpr char kForward[] = R"(
def forward(self, x):
    return torch.matmul(x, self.w) + self.b
)";

std::string ImageRecord(std::vector<float> image, int64_t label) {
  data::ExampleBuilder builder;
  builder.SetFloats("image", image);
  builder.SetInt64("label", label);
  return builder.Serialize();
}

void Step(Network& network, double lr) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : network.parameters()) {
    Tensor mutable_parameter = parameter;
    mutable_parameter.sub_(parameter.grad() * lr);
    mutable_parameter.mutable_grad().zero_();
  }
}

TEST_F(TorchScriptTest, TrainsAndExports) {
  Save(kForward);
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Optimizer()->args.at("momentum"), 0.9);
  auto network = (*model)->CreateNetwork({1, /*sharded_embeddings=*/true});
  ASSERT_TRUE(network.ok()) << network.status();
  ASSERT_EQ((*network)->parameters().size(), 2u);
  EXPECT_EQ((*network)->parameters()[0].first, "w");
  EXPECT_TRUE((*network)->tables().empty());
  (*network)->SetRowSource(nullptr);

  const std::string records[] = {ImageRecord({255, 0, 0, 0}, 0),
                                 ImageRecord({0, 255, 0, 0}, 1)};
  const std::vector<absl::string_view> views(records, records + 2);
  (*network)->Train();
  double first = 0;
  double last = 0;
  for (int i = 0; i < 20; ++i) {
    const auto batch = (*model)->Feed(views, Mode::kTraining, {});
    ASSERT_TRUE(batch.ok()) << batch.status();
    const auto outputs = (*network)->Forward(batch->features);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto loss = (*model)->Loss(batch->labels, *outputs);
    ASSERT_TRUE(loss.ok()) << loss.status();
    last = loss->item<double>();
    if (i == 0) first = last;
    loss->backward();
    Step(**network, 0.5);
  }
  EXPECT_LT(last, first / 2);

  const std::string out = dir_.Path("export");
  ASSERT_TRUE(ExportTo(out, **network).ok());
  torch::jit::Module loaded = torch::jit::load(JoinPath(out, "model.pt"));
  EXPECT_TRUE(
      loaded.attr("w").toTensor().equal((*network)->parameters()[0].second));
  const std::string bytes = ReadFile(JoinPath(out, "state_dict.pt")).value();
  const auto state =
      torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
  EXPECT_TRUE(state.toGenericDict().at("w").toTensor().equal(
      (*network)->parameters()[0].second));
}

// It has one gradient, which is the sum of both uses.
TEST_F(TorchScriptTest, AParameterWithTwoNamesIsOne) {
  torch::jit::Module inner("Inner");
  torch::jit::Module module("Net");
  const Tensor shared = torch::ones({4, 3}, torch::requires_grad());
  inner.register_parameter("v", shared, false);
  module.register_parameter("w", shared, false);
  module.register_module("inner", inner);
  module.define(R"(
def forward(self, x):
    return torch.matmul(x, self.w) + torch.matmul(x, self.inner.v * 2)
)");
  module.save(dir_.Path("net.pt"));
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  auto network = (*model)->CreateNetwork({});
  ASSERT_TRUE(network.ok()) << network.status();
  ASSERT_EQ((*network)->parameters().size(), 1u);
  Tensor parameter = (*network)->parameters()[0].second;
  // As the worker does: in memory of its own.
  parameter.set_data(torch::full({4, 3}, 5.0F));
  const auto outputs = (*network)->Forward(Features(torch::ones({1, 4})));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->tensor()[0][0].item<float>(), 60);
  outputs->tensor().sum().backward();
  EXPECT_EQ(parameter.grad()[0][0].item<float>(), 3);

  const std::string out = dir_.Path("export");
  ASSERT_TRUE(ExportTo(out, **network).ok());
  const std::string bytes = ReadFile(JoinPath(out, "state_dict.pt")).value();
  const auto state =
      torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
  for (const char* name : {"w", "inner.v"}) {
    EXPECT_TRUE(state.toGenericDict().at(name).toTensor().equal(parameter));
  }
  const torch::jit::Module loaded = torch::jit::load(JoinPath(out, "model.pt"));
  EXPECT_TRUE(loaded.attr("w").toTensor().equal(parameter));
}

// A copy that must not be trained is none of the parameter that is.
TEST_F(TorchScriptTest, AFrozenCopyInTheSameMemoryStaysFrozen) {
  torch::jit::Module module("Net");
  const Tensor trained = torch::ones({4, 3}, torch::requires_grad());
  module.register_parameter("a", trained.detach(), false);
  module.register_parameter("b", trained, false);
  module.define(R"(
def forward(self, x):
    return torch.matmul(x, self.a) + torch.matmul(x, self.b)
)");
  module.save(dir_.Path("net.pt"));
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  auto network = (*model)->CreateNetwork({});
  ASSERT_TRUE(network.ok()) << network.status();
  std::map<std::string, bool> trains;
  for (const auto& [name, tensor] : (*network)->parameters()) {
    trains[name] = tensor.requires_grad();
  }
  EXPECT_TRUE(trains.at("b"));
  EXPECT_FALSE(trains["a"]);
}

TEST_F(TorchScriptTest, DefaultMetricsSuitTheLoss) {
  Save(kForward);
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  auto metrics = (*model)->CreateMetrics();
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->Take()[0].name, "accuracy");
  options_.eval_metrics_fn = "auc(logits=1),rmse";
  model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->CreateMetrics()->Take()[1].kind, "sqrt_mean");
}

TEST_F(TorchScriptTest, SeveralInputsAndOutputsByName) {
  Save(R"(
def forward(self, b, a):
    return {"sum": a + b, "difference": a - b}
)");
  options_.loss = "mse(output=sum)";
  options_.feed = "example(features=a|b)";
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  data::ExampleBuilder builder;
  builder.SetFloats("a", {5, 7});
  builder.SetInt64s("b", {1, 2});
  builder.SetFloat("label", 0);
  const std::string record = builder.Serialize();
  const std::vector<absl::string_view> views = {record};
  const auto batch = (*model)->Feed(views, Mode::kTraining, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  auto network = (*model)->CreateNetwork({0});
  const auto outputs = (*network)->Forward(batch->features);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->at("sum")[0][1].item<float>(), 9);
  EXPECT_EQ(outputs->at("difference")[0][0].item<float>(), 4);
}

TEST_F(TorchScriptTest, CsvFeedByColumn) {
  Save(kForward);
  options_.feed = "csv(label=kind,features=x|y)";
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  Metadata metadata;
  metadata.column_names = {"x", "kind", "y"};
  const std::vector<absl::string_view> views = {"1.5,2,3", "4,0,\"5\""};
  const auto batch = (*model)->Feed(views, Mode::kTraining, metadata);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->features.tensor()[1][1].item<float>(), 5);
  EXPECT_EQ(batch->labels[0].item<int64_t>(), 2);
  const std::vector<absl::string_view> bad = {"1,2,3", "4,0,five"};
  const auto error = (*model)->Feed(bad, Mode::kTraining, metadata).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(BadRecord(error), 1);
  EXPECT_THAT(error.message(), HasSubstr("'five' is not a number"));
}

TEST_F(TorchScriptTest, FlagsMustNameBuiltIns) {
  Save(kForward);
  options_.loss = "loss";
  EXPECT_THAT(Message(), HasSubstr("--loss=loss"));
  EXPECT_THAT(Message(), HasSubstr("cross_entropy"));
  options_.loss = "mse";
  options_.feed = "feed";
  EXPECT_THAT(Message(), HasSubstr("image_classification"));
  options_.feed = "image_classification(shape=2y)";
  EXPECT_THAT(Message(), HasSubstr("shape=2y"));
  options_.feed = "csv(colour=1)";
  EXPECT_THAT(Message(), HasSubstr("colour"));
  options_.feed = "csv";
  options_.optimizer = "SGDD(lr=1)";
  EXPECT_THAT(Message(), HasSubstr("--optimizer=SGDD"));
}

TEST_F(TorchScriptTest, AFileThatIsNoTorchScript) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("net.pt"), "no zip").ok());
  EXPECT_THAT(Message(), HasSubstr("net.pt"));
  options_.model_def = "other.pt";
  EXPECT_EQ(Load(options_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TorchScriptTest, ForwardThatThrows) {
  Save(kForward);
  auto model = Load(options_);
  ASSERT_TRUE(model.ok()) << model.status();
  auto network = (*model)->CreateNetwork({0});
  const auto error = (*network)->Forward(torch::ones({2, 5})).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(error.message(), HasSubstr("'forward'"));
}

}  // namespace
}  // namespace elasticdl::model
