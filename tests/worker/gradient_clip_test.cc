// Clipping by global norm, against libtorch's.
#include "gradient_clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>
#include <vector>

namespace elasticdl::worker {
namespace {

TEST(GradientClipTest, SpecTellsTheNorm) {
  EXPECT_EQ(GlobalClipNorm("SGD(lr=0.1)"), 0);
  EXPECT_EQ(GlobalClipNorm("Adam(global_clipnorm=1.5)"), 1.5);
  EXPECT_EQ(GlobalClipNorm("no optimizer"), 0);
}

// Over all arrays together, as if they were one.
TEST(GradientClipTest, AgreesWithLibtorch) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> value(0, 1);
    std::vector<std::vector<float>> arrays;
    std::vector<torch::Tensor> tensors;
    for (int i = 0; i < 4; ++i) {
      std::vector<float>& array = arrays.emplace_back(random() % 50);
      for (float& v : array) v = value(random);
      torch::Tensor tensor = torch::zeros({static_cast<int64_t>(array.size())});
      tensor.mutable_grad() = torch::tensor(array);
      tensors.push_back(tensor);
    }
    const double most = seed % 2 == 0 ? 0.5 : 1000;
    torch::nn::utils::clip_grad_norm_(tensors, most);
    std::vector<absl::Span<float>> spans;
    for (auto& array : arrays) spans.push_back(absl::MakeSpan(array));
    ClipByGlobalNorm(most, spans);
    for (size_t i = 0; i < arrays.size(); ++i) {
      for (size_t j = 0; j < arrays[i].size(); ++j) {
        EXPECT_NEAR(arrays[i][j],
                    tensors[i].grad()[static_cast<int64_t>(j)].item<float>(),
                    1e-5);
      }
    }
  }
}

TEST(GradientClipTest, WhatIsNoNumberStays) {
  std::vector<float> values = {1, std::nanf("")};
  ClipByGlobalNorm(0.1, {absl::MakeSpan(values)});
  EXPECT_EQ(values[0], 1);
  EXPECT_TRUE(std::isnan(values[1]));
}

}  // namespace
}  // namespace elasticdl::worker
