#include "model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "elasticdl/common/json_text.h"
#include "elasticdl/page/history.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

v1::ModelTensor* AddTensor(v1::ModelSummary& model, const std::string& name,
                           const std::string& layer,
                           const std::vector<int64_t>& shape, int64_t bytes,
                           v1::ModelTensor::Kind kind) {
  v1::ModelTensor* const tensor = model.add_tensors();
  tensor->set_name(name);
  tensor->set_layer_type(layer);
  for (const int64_t size : shape) tensor->add_shape(size);
  tensor->set_bytes(bytes);
  tensor->set_kind(kind);
  model.set_num_tensors(model.num_tensors() + 1);
  return tensor;
}

v1::ModelSummary SomeModel() {
  v1::ModelSummary model;
  AddTensor(model, "fc.weight", "Linear", {10, 120}, 4800,
            v1::ModelTensor::TRAINED)
      ->set_dtype("float32");
  AddTensor(model, "wide.embeddings", "Embedding", {0, 8}, 0,
            v1::ModelTensor::TABLE);
  AddTensor(model, "mean", "", {}, 4, v1::ModelTensor::BUFFER);
  model.set_trained(1200);
  model.set_buffers(1);
  model.set_bytes(4804);
  model.set_optimizer("SGD(lr=0.1)");
  return model;
}

TEST(ModelSummaryTest, IsATableForPeople) {
  EXPECT_THAT(
      ModelToLines(SomeModel()),
      ElementsAre(
          "parameter        layer      shape   numbers    size  kind",
          "fc.weight        Linear     10x120     1200  4.8 kB  trained",
          "wide.embeddings  Embedding  anyx8         -       -  on servers",
          "mean                                      1     4 B  buffer",
          "the model has 1200 trained numbers, 0 frozen, 1 in buffers: 4.8 kB "
          "without embeddings on servers; optimizer SGD(lr=0.1)"));
}

TEST(ModelSummaryTest, IsJsonForTheEventLog) {
  const nlohmann::ordered_json json = ModelToJson(SomeModel());
  EXPECT_EQ(json.at("tensors").at(0).dump(),
            R"({"name":"fc.weight","layer":"Linear","shape":[10,120],)"
            R"("kind":"trained","dtype":"float32","bytes":4800,"count":1200})");
  EXPECT_EQ(json.at("tensors").at(1).dump(),
            R"({"name":"wide.embeddings","layer":"Embedding","shape":[0,8],)"
            R"("kind":"on servers"})");
  EXPECT_EQ(json.at("trained"), 1200);
  EXPECT_EQ(json.at("num_tensors"), 3);
}

// It comes from a worker: whatever it says, what is kept is small and text.
TEST(ModelSummaryTest, IsBoundedWhateverAWorkerSends) {
  v1::ModelSummary model;
  for (int i = 0; i < 3000; ++i) {
    AddTensor(model, std::string(5000, 'n'), std::string(5000, '\xff'),
              std::vector<int64_t>(100, INT64_MAX), INT64_MAX,
              static_cast<v1::ModelTensor::Kind>(77));
  }
  model.set_optimizer(std::string(1 << 20, 'o'));
  const std::string text = JsonText(ModelToJson(model));
  EXPECT_LT(text.size(), 1u << 20);
  EXPECT_THAT(ParseJson(text).at("tensors"),
              SizeIs(page::History::kMaxTensors));
  const auto lines = ModelToLines(model);
  EXPECT_THAT(lines, SizeIs(page::History::kMaxTensors + 3));
  EXPECT_EQ(lines[lines.size() - 2], "and 2500 more");
}

TEST(ModelSummaryTest, NamesCannotSteerATerminal) {
  v1::ModelSummary model;
  AddTensor(model, "\x1b[2Ja\n", "L", {1}, 4, v1::ModelTensor::TRAINED);
  EXPECT_THAT(ModelToLines(model)[1], HasSubstr("\\x1b[2Ja\\n"));
}

}  // namespace
}  // namespace elasticdl::master
