// What a worker tells about its model: the summary and histograms.
#include "model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "histogram.h"

namespace elasticdl::worker {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

class SomeNetwork : public model::Network {
 public:
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override {}
  void Eval() override {}
  absl::StatusOr<Outputs> Forward(const Features&) override {
    return absl::UnimplementedError("not used here");
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource*) override {}
  std::map<std::string, std::string> LayerTypes() const override {
    return {{"", "Net"}, {"a.fc", "Linear"}};
  }
  absl::StatusOr<std::string> Serialize() const override { return ""; }

  Tensors parameters_;
  Tensors buffers_;
  std::vector<ShardedTable> tables_;
};

TEST(ModelSummaryTest, TellsOfEachTensorAndOfAllTogether) {
  SomeNetwork network;
  network.parameters_ = {
      {"a.fc.weight", torch::zeros({3, 5}).set_requires_grad(true)},
      {"scale", torch::zeros({})},
      {"b.weight", torch::zeros({2}, torch::kFloat64).set_requires_grad(true)}};
  network.buffers_ = {{"a.count", torch::zeros({4}, torch::kInt64)}};
  network.tables_ = {{"wide.embeddings", 8, 0, "uniform", -1}};
  const v1::ModelSummary summary = SummarizeModel(network, "SGD(lr=0.1)");
  EXPECT_EQ(summary.trained(), 17);
  EXPECT_EQ(summary.frozen(), 1);
  EXPECT_EQ(summary.buffers(), 4);
  EXPECT_EQ(summary.bytes(), 15 * 4 + 4 + 2 * 8 + 4 * 8);
  EXPECT_EQ(summary.num_tensors(), 5);
  EXPECT_EQ(summary.optimizer(), "SGD(lr=0.1)");
  ASSERT_THAT(summary.tensors(), SizeIs(5));
  const v1::ModelTensor& weight = summary.tensors(0);
  EXPECT_EQ(weight.name(), "a.fc.weight");
  EXPECT_EQ(weight.layer_type(), "Linear");
  EXPECT_THAT(weight.shape(), ElementsAre(3, 5));
  EXPECT_EQ(weight.dtype(), "float32");
  EXPECT_EQ(weight.bytes(), 60);
  EXPECT_EQ(weight.kind(), v1::ModelTensor::TRAINED);
  EXPECT_EQ(summary.tensors(1).kind(), v1::ModelTensor::FROZEN);
  EXPECT_EQ(summary.tensors(1).layer_type(), "Net");
  EXPECT_EQ(summary.tensors(2).dtype(), "float64");
  EXPECT_EQ(summary.tensors(2).layer_type(), "") << "a layer without a name";
  EXPECT_EQ(summary.tensors(3).kind(), v1::ModelTensor::TABLE);
  EXPECT_THAT(summary.tensors(3).shape(), ElementsAre(0, 8));
  EXPECT_EQ(summary.tensors(4).kind(), v1::ModelTensor::BUFFER);
}

TEST(ModelSummaryTest, AModelOfManyTensorsIsCutAndCountedWhole) {
  SomeNetwork network;
  const auto count = static_cast<int64_t>(kMaxSummaryTensors) + 20;
  for (int64_t i = 0; i < count; ++i) {
    network.parameters_.emplace_back(absl::StrCat(std::string(1000, 'x'), i),
                                     torch::zeros({2}).set_requires_grad(true));
  }
  const v1::ModelSummary summary = SummarizeModel(network, "");
  EXPECT_THAT(summary.tensors(), SizeIs(kMaxSummaryTensors));
  EXPECT_EQ(summary.num_tensors(), count);
  EXPECT_EQ(summary.trained(), 2 * count);
  EXPECT_LT(summary.ByteSizeLong(), 150000u);
}

double Total(const v1::Histogram& histogram) {
  double total = 0;
  for (const double count : histogram.counts()) total += count;
  return total;
}

TEST(HistogramTest, CountsEachValueInItsBin) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::normal_distribution<float> draw(0, std::pow(10.0F, round % 20 - 10));
    std::vector<float> values(1 + random() % 2000);
    for (float& value : values) value = draw(random);
    const v1::Histogram histogram = MakeHistogram("w", values);
    ASSERT_EQ(histogram.limits_size(), histogram.counts_size());
    ASSERT_LE(histogram.limits_size(), static_cast<int>(kHistogramBins));
    EXPECT_EQ(histogram.num(), static_cast<int64_t>(values.size()));
    EXPECT_EQ(Total(histogram), static_cast<double>(values.size()));
    EXPECT_EQ(histogram.limits(histogram.limits_size() - 1), histogram.max());
    // Counted another way; values at a limit may be on either side of it.
    const double width = (histogram.max() - histogram.min()) / kHistogramBins;
    double before = 0;
    for (int i = 0; i < histogram.limits_size(); ++i) {
      before += histogram.counts(i);
      double low = 0;
      double high = 0;
      for (const float value : values) {
        low += value < histogram.limits(i) - width / 100 ? 1 : 0;
        high += value <= histogram.limits(i) + width / 100 ? 1 : 0;
      }
      EXPECT_GE(before, low) << i;
      EXPECT_LE(before, high) << i;
    }
  }
}

TEST(HistogramTest, SumsAreThoseOfTheValues) {
  const std::vector<float> values = {1, 2, 3, -2};
  const v1::Histogram histogram = MakeHistogram("layer.bias", values);
  EXPECT_EQ(histogram.name(), "layer.bias");
  EXPECT_EQ(histogram.min(), -2);
  EXPECT_EQ(histogram.max(), 3);
  EXPECT_EQ(histogram.sum(), 4);
  EXPECT_EQ(histogram.sum_squares(), 18);
}

TEST(HistogramTest, EqualValuesHaveOneBin) {
  const v1::Histogram zeros = MakeHistogram("z", std::vector<float>(9, 0));
  EXPECT_THAT(zeros.limits(), ElementsAre(0));
  EXPECT_THAT(zeros.counts(), ElementsAre(9));
}

TEST(HistogramTest, WhatIsNoNumberIsLeftOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const v1::Histogram some =
      MakeHistogram("w", std::vector<float>{nan, 1, -inf, inf, 2});
  EXPECT_EQ(some.num(), 2);
  EXPECT_EQ(some.min(), 1);
  EXPECT_EQ(some.max(), 2);
  EXPECT_EQ(Total(some), 2);
  const v1::Histogram none = MakeHistogram("w", std::vector<float>{nan, nan});
  EXPECT_EQ(none.num(), 0);
  EXPECT_EQ(none.limits_size(), 0);
  EXPECT_EQ(MakeHistogram("w", {}).num(), 0);
  // The largest span that floats can have.
  const float most = std::numeric_limits<float>::max();
  const v1::Histogram wide =
      MakeHistogram("w", std::vector<float>{-most, 0, most});
  EXPECT_EQ(Total(wide), 3);
  EXPECT_EQ(wide.limits_size(), static_cast<int>(kHistogramBins));
}

}  // namespace
}  // namespace elasticdl::worker
