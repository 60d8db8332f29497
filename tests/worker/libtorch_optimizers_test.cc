// Our optimizers' kernels against those of libtorch, over many steps.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/optim.h"

namespace elasticdl::worker {
namespace {

namespace theirs = torch::optim;

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::Tensor> parameters)>;

struct Case {
  const char* spec;
  Make make;
};

template <typename Type, typename Options>
Make With(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Type>(std::move(parameters), options);
  };
}

TEST(LibtorchOptimizersTest, TheSameWithinRounding) {
  const std::vector<Case> cases = {
      {"SGD(lr=0.1)", With<theirs::SGD>(theirs::SGDOptions(0.1))},
      {"SGD(lr=0.1,momentum=0.9,weight_decay=0.01)",
       With<theirs::SGD>(
           theirs::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
      {"SGD(lr=0.1,momentum=0.9,nesterov=1)",
       With<theirs::SGD>(theirs::SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"Adam(lr=0.01)", With<theirs::Adam>(theirs::AdamOptions(0.01))},
      {"Adam(lr=0.01,amsgrad=1,weight_decay=0.1)",
       With<theirs::Adam>(
           theirs::AdamOptions(0.01).amsgrad(true).weight_decay(0.1))},
      {"AdamW(lr=0.01,weight_decay=0.1)",
       With<theirs::AdamW>(theirs::AdamWOptions(0.01).weight_decay(0.1))},
      {"Adagrad(lr=0.1,weight_decay=0.01)",
       With<theirs::Adagrad>(theirs::AdagradOptions(0.1).weight_decay(0.01))},
      {"Adagrad(lr=0.1,lr_decay=0.1,initial_accumulator_value=0.5)",
       With<theirs::Adagrad>(
           theirs::AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(
               0.5))},
      {"RMSprop(lr=0.01,momentum=0.5,centered=1)",
       With<theirs::RMSprop>(
           theirs::RMSpropOptions(0.01).momentum(0.5).centered(true))},
  };
  constexpr int64_t kSize = 37;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.spec);
    const auto optimizer =
        optim::Optimizer::Create(*optim::OptimizerSpec::Parse(one.spec));
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    std::mt19937_64 random(1);
    std::normal_distribution<float> value(0, 1);
    std::vector<float> mine(kSize);
    for (float& v : mine) v = value(random);
    torch::Tensor other = torch::tensor(mine);
    other.mutable_grad() = torch::zeros({kSize});
    const auto torch_optimizer = one.make({other});
    std::vector<std::vector<float>> slots;
    std::vector<float*> pointers;
    for (size_t s = 0; s < (*optimizer)->slot_names().size(); ++s) {
      slots.emplace_back(kSize, (*optimizer)->initial_slot_value(s));
    }
    for (auto& slot : slots) pointers.push_back(slot.data());
    for (int64_t step = 1; step <= 50; ++step) {
      std::vector<float> gradient(kSize);
      for (float& v : gradient) v = value(random);
      (*optimizer)
          ->Apply(mine.data(), gradient.data(), pointers.data(), kSize,
                  (*optimizer)->learning_rate(), step);
      other.mutable_grad() = torch::tensor(gradient);
      torch_optimizer->step();
    }
    for (int64_t i = 0; i < kSize; ++i) {
      EXPECT_NEAR(mine[static_cast<size_t>(i)], other[i].item<float>(), 2e-5);
    }
  }
}

}  // namespace
}  // namespace elasticdl::worker
