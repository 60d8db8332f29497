// What a worker tells about its model.
#include "model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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

}  // namespace
}  // namespace elasticdl::worker
