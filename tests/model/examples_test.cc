// Every example compiles, decodes records of its kind, and learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "elasticdl/common/file.h"
#include "elasticdl/data/example.h"
#include "elasticdl/model/loader.h"

namespace elasticdl::model {
namespace {

using RecordMaker = std::string (*)(std::mt19937& random);

struct Example {
  const char* model_def;
  RecordMaker record;
  const char* params;
};

void PrintTo(const Example& example, std::ostream* out) {
  *out << example.model_def;
}

// An image that is brighter in the rows of its label.
std::string ImageRecord(std::mt19937& random, int64_t size, int64_t channels) {
  const auto label = static_cast<int64_t>(random() % 10);
  std::vector<float> image(static_cast<size_t>(size * size * channels));
  for (size_t i = 0; i < image.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / (size * channels);
    image[i] =
        static_cast<float>(random() % 50) + (row / 2 == label ? 200.0f : 0.0f);
  }
  data::ExampleBuilder builder;
  builder.SetFloats("image", image);
  builder.SetInt64("label", label);
  return builder.Serialize();
}

std::string Mnist(std::mt19937& random) { return ImageRecord(random, 28, 1); }
std::string Cifar(std::mt19937& random) { return ImageRecord(random, 32, 3); }

std::string Frappe(std::mt19937& random) {
  std::vector<int64_t> ids(10);
  for (int64_t& id : ids) id = 1 + static_cast<int64_t>(random() % 100);
  data::ExampleBuilder builder;
  builder.SetInt64s("feature", ids);
  builder.SetInt64("label", ids[0] > 50 ? 1 : 0);
  return builder.Serialize();
}

std::string Census(std::mt19937& random) {
  data::ExampleBuilder builder;
  const bool rich = random() % 2 == 0;
  for (const char* name : {"age", "education-num", "capital-gain",
                           "capital-loss", "hours-per-week"}) {
    builder.SetFloat(name, static_cast<float>(random() % 60));
  }
  for (const char* name : {"workclass", "education", "marital-status",
                           "relationship", "race", "sex", "native-country"}) {
    builder.SetBytes(name,
                     absl::string_view(random() % 2 == 0 ? "this" : "that"));
  }
  builder.SetBytes("occupation",
                   absl::string_view(rich ? "Exec-managerial" : "Sales"));
  builder.SetInt64("label", rich ? 1 : 0);
  return builder.Serialize();
}

std::string Iris(std::mt19937& random) {
  const bool small = random() % 2 == 0;
  return small ? "5.0,3.4,1.5,0.2,setosa" : "6.5,3.0,5.5,2.0,virginica";
}

class ExamplesTest : public ::testing::TestWithParam<Example> {};

// The model in its cache folder, which lasts between runs.
LoadOptions OptionsFor(const Example& example) {
  LoadOptions options;
  options.model_zoo = EXAMPLES;
  options.model_def = example.model_def;
  options.model_params = example.params;
  options.cache_dir = MODEL_CACHE;
  auto toolchain = ReadToolchain(MODEL_TOOLCHAIN);
  EXPECT_TRUE(toolchain.ok()) << toolchain.status();
  options.toolchain = *toolchain;
  return options;
}

// One step of the model's own optimizer on all parameters.
class Stepper {
 public:
  Stepper(Network& network, const OptimizerSpec& spec)
      : network_(network), optimizer_(*optim::Optimizer::Create(spec)) {
    for (const auto& [name, parameter] : network.parameters()) {
      slots_.emplace_back();
      for (size_t i = 0; i < optimizer_->slot_names().size(); ++i) {
        slots_.back().emplace_back(static_cast<size_t>(parameter.numel()),
                                   optimizer_->initial_slot_value(i));
      }
    }
  }
  void Step() {
    const torch::NoGradGuard no_grad;
    ++step_;
    for (size_t i = 0; i < network_.parameters().size(); ++i) {
      torch::Tensor parameter = network_.parameters()[i].second;
      torch::Tensor grad = parameter.grad().contiguous();
      std::vector<float*> slots;
      for (auto& slot : slots_[i]) slots.push_back(slot.data());
      optimizer_->Apply(parameter.data_ptr<float>(), grad.data_ptr<float>(),
                        slots.data(), static_cast<size_t>(parameter.numel()),
                        optimizer_->learning_rate(), step_);
      parameter.mutable_grad().zero_();
    }
  }

 private:
  Network& network_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<std::vector<std::vector<float>>> slots_;
  int64_t step_ = 0;
};

TEST_P(ExamplesTest, LearnsOneMinibatch) {
  std::mt19937 random(1);
  std::vector<std::string> records(16);
  for (std::string& record : records) record = GetParam().record(random);
  const std::vector<absl::string_view> views(records.begin(), records.end());

  auto model = Load(OptionsFor(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status();
  auto network = (*model)->CreateNetwork({1});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto spec = (*model)->Optimizer();
  ASSERT_TRUE(spec.ok()) << spec.status();
  Stepper stepper(**network, *spec);
  (*network)->Train();
  double first = 0;
  double last = 0;
  for (int step = 0; step < 25; ++step) {
    const auto batch = (*model)->Feed(views, Mode::kTraining, {});
    ASSERT_TRUE(batch.ok()) << batch.status();
    const auto outputs = (*network)->Forward(batch->features);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto loss = (*model)->Loss(batch->labels, *outputs);
    ASSERT_TRUE(loss.ok()) << loss.status();
    last = loss->item<double>();
    if (step == 0) first = last;
    loss->backward();
    stepper.Step();
  }
  EXPECT_LT(last, first);

  const torch::NoGradGuard no_grad;
  (*network)->Eval();
  const auto batch = (*model)->Feed(views, Mode::kEvaluation, {});
  const auto outputs = (*network)->Forward(batch->features);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  auto metrics = (*model)->CreateMetrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->Update(batch->labels, *outputs).ok());
  EXPECT_FALSE((*model)->Feed(views, Mode::kPrediction, {})->features.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, ExamplesTest,
    ::testing::Values(
        Example{"mnist.mnist_functional_api.custom_model", Mnist, ""},
        Example{"mnist.mnist_subclass.custom_model", Mnist, ""},
        Example{"mnist.mlp.custom_model", Mnist,
                "hidden1=32;hidden2=16;lr=0.01"},
        Example{"cifar10.cifar10_cnn.custom_model", Cifar, ""},
        Example{"cifar10.resnet20.custom_model", Cifar, "blocks=1"},
        Example{"census.wide_deep.custom_model", Census, ""},
        Example{"deepfm.deepfm.custom_model", Frappe, "lr=0.01"},
        Example{"iris.iris_dnn.custom_model", Iris, ""}),
    [](const auto& info) {
      std::string name = info.param.model_def;
      name.resize(name.rfind('.'));
      name = name.substr(name.rfind('.') + 1);
      // No underscores in test names.
      name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
      return name;
    });

}  // namespace
}  // namespace elasticdl::model
