// Embedding, metrics, named tensors and image batches of model files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "elasticdl/data/example.h"
#include "elasticdl/model/loader.h"

namespace elasticdl {
namespace {

using ::testing::ElementsAre;
using torch::Tensor;

Tensor Ids(std::vector<int64_t> ids) {
  return torch::tensor(ids, torch::kLong);
}

// Row i of the table is (i, 10 i).
Embedding CountingEmbedding(EmbeddingOptions options) {
  Embedding layer(options.output_dim(2).input_dim(5));
  const torch::NoGradGuard no_grad;
  const Tensor i = torch::arange(5, torch::kFloat);
  layer->parameters()[0].copy_(torch::stack({i, 10 * i}, 1));
  return layer;
}

// Row 0: {1, 3}; row 1: {}; row 2: {2, -1, 4}.
const SparseIds kSparse{Ids({1, 3, 2, -1, 4}), Ids({0, 2, 2})};

std::vector<float> First(const Tensor& rows) {
  const Tensor column = rows.select(1, 0).contiguous();
  return {column.data_ptr<float>(), column.data_ptr<float>() + column.numel()};
}

TEST(EmbeddingTest, DenseIdsGetOneRowEach) {
  Embedding layer = CountingEmbedding(EmbeddingOptions(2));
  const Tensor out = layer(torch::tensor({{1, 2, -1}, {0, 4, 4}}));
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(out[0][1][1].item<float>(), 20);
  EXPECT_EQ(out[0][2][1].item<float>(), 0);
}

TEST(EmbeddingTest, CombinersOfSparseIds) {
  Embedding sum = CountingEmbedding(EmbeddingOptions(2).combiner("sum"));
  EXPECT_THAT(First(sum(kSparse)), ElementsAre(4, 0, 6));
  Embedding mean = CountingEmbedding(EmbeddingOptions(2).combiner("mean"));
  EXPECT_THAT(First(mean(kSparse)), ElementsAre(2, 0, 3));
  Embedding root = CountingEmbedding(EmbeddingOptions(2).combiner("sqrtn"));
  const auto out = First(root(kSparse));
  EXPECT_FLOAT_EQ(out[0], 4 / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(out[1], 0);
  EXPECT_FLOAT_EQ(out[2], 6 / std::sqrt(2.0f));
}

TEST(EmbeddingTest, CombinerOfDenseIdsLeavesOutNegativeOnes) {
  Embedding layer = CountingEmbedding(EmbeddingOptions(2).combiner("mean"));
  EXPECT_THAT(First(layer(torch::tensor({{1, 3, -1}, {-1, -1, -1}}))),
              ElementsAre(2, 0));
}

TEST(EmbeddingTest, MaskZeroIsPadding) {
  Embedding layer =
      CountingEmbedding(EmbeddingOptions(2).combiner("mean").mask_zero(true));
  EXPECT_THAT(First(layer(torch::tensor({{2, 4, 0, 0}}))), ElementsAre(3));
}

TEST(EmbeddingTest, GradientsReachOnlyTheRowsUsed) {
  Embedding layer = CountingEmbedding(EmbeddingOptions(2).combiner("sum"));
  layer(kSparse).sum().backward();
  EXPECT_THAT(First(layer->parameters()[0].grad()), ElementsAre(0, 1, 1, 1, 1));
}

TEST(EmbeddingTest, UnknownIdsAreHashedIntoTheCapacity) {
  Embedding layer(EmbeddingOptions(3).capacity(100));
  EXPECT_EQ(layer->parameters()[0].size(0), 100);
  const Tensor ids = torch::tensor(
      std::vector<int64_t>{0, 1, 123456789012345, INT64_MAX}, torch::kLong);
  const Tensor out = layer(ids);
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(out.equal(layer(ids)));
  // 200 neighbouring ids hit most rows.
  layer(torch::arange(200, torch::kLong)).sum().backward();
  const auto used = layer->parameters()[0].grad().select(1, 0).ne(0).sum();
  EXPECT_GT(used.item<int64_t>(), 60);
}

TEST(EmbeddingTest, RejectsWrongUse) {
  EXPECT_ANY_THROW(Embedding(EmbeddingOptions(2).combiner("max")));
  EXPECT_ANY_THROW(Embedding(EmbeddingOptions(2).initializer("one")));
  Embedding layer = CountingEmbedding(EmbeddingOptions(2));
  EXPECT_ANY_THROW(layer(kSparse));
  EXPECT_ANY_THROW(layer(Ids({5})));
}

TEST(NamedTensorsTest, ConvertsAndComplains) {
  const NamedTensors one(torch::ones({2, 3}));
  EXPECT_EQ(one.rows(), 2);
  EXPECT_EQ(static_cast<const Tensor&>(one).numel(), 6);
  const NamedTensors two{{"a", torch::ones({1})}, {"b", torch::zeros({1})}};
  EXPECT_EQ(two["b"].item<float>(), 0);
  EXPECT_THROW(two.tensor(), std::out_of_range);
  EXPECT_THROW(two.at("c"), std::out_of_range);
}

std::vector<double> SumsOf(std::shared_ptr<Metric> metric, const Tensor& labels,
                           const Outputs& outputs) {
  metric->Update(labels, outputs);
  return metric->sums();
}

TEST(MetricsTest, SumsOfEachKind) {
  const Tensor scores = torch::tensor({{0.1, 0.9}, {0.8, 0.2}, {0.3, 0.7}});
  EXPECT_THAT(SumsOf(Accuracy(), Ids({1, 1, 1}), scores), ElementsAre(2, 3));
  const Tensor labels = torch::tensor({1.0f, 0.0f, 1.0f, 0.0f});
  const Tensor p = torch::tensor({0.9f, 0.6f, 0.2f, 0.1f});
  EXPECT_THAT(SumsOf(BinaryAccuracy(), labels, p), ElementsAre(2, 4));
  EXPECT_THAT(SumsOf(Precision(), labels, p), ElementsAre(1, 2));
  EXPECT_THAT(SumsOf(Recall(), labels, p), ElementsAre(1, 2));
  const auto mse = SumsOf(MeanSquaredError(), labels, p.unsqueeze(1));
  EXPECT_NEAR(mse[0], 0.01 + 0.36 + 0.64 + 0.01, 1e-6);
  EXPECT_EQ(mse[1], 4);
  EXPECT_EQ(RootMeanSquaredError()->kind(), metric::kSqrtMean);
  EXPECT_NEAR(SumsOf(MeanAbsoluteError(), labels, p)[0], 1.6, 1e-6);
}

// Whatever the size of the minibatches is, and of the last one.
TEST(MetricsTest, AMeanOfAMinibatchIsWeightedByItsRecords) {
  const auto mean = [](const Tensor& labels, const Tensor& p) {
    return (p - labels).abs().mean();
  };
  const std::shared_ptr<Metric> metric = Mean(mean);
  metric->Update(torch::zeros({3}), torch::tensor({1.0f, 2.0f, 3.0f}));
  EXPECT_THAT(SumsOf(metric, torch::zeros({1}), torch::tensor({10.0f})),
              ElementsAre(16, 4));
}

TEST(MetricsTest, AucCountsBins) {
  const Tensor labels = torch::tensor({1.0f, 0.0f, 1.0f, 0.0f});
  const Tensor p = torch::tensor({1.0f, 0.6f, 0.3f, 0.0f});
  // Two bins: positives low, high, then negatives low, high.
  EXPECT_THAT(SumsOf(Auc(false, "", 2), labels, p), ElementsAre(1, 1, 1, 1));
  const auto sums = SumsOf(Auc(), labels, p);
  EXPECT_NEAR(*metric::Value(metric::kAuc, sums), 0.75, 1e-9);
  const auto logits =
      SumsOf(Auc(/*logits=*/true, "", 2), labels, torch::logit(p, 1e-6));
  EXPECT_THAT(logits, ElementsAre(1, 1, 1, 1));
}

TEST(MetricsTest, SetTakesAndStartsAgain) {
  model::MetricSet set({{"rows", Mean([](const Tensor& y, const Tensor&) {
                           return y.to(torch::kFloat);
                         })},
                        {"on_b", Accuracy("b")}});
  const Outputs outputs{{"a", torch::zeros({2, 2})},
                        {"b", torch::tensor({{1.0, 0.0}, {0.0, 1.0}})}};
  EXPECT_FALSE(set.Update(Ids({0, 1}), torch::zeros({2, 2})).ok());
  EXPECT_FALSE(set.Update(Ids({0, 1}), outputs).ok());  // "rows" wants one
  model::MetricSet named({{"on_b", Accuracy("b")}});
  ASSERT_TRUE(named.Update(Ids({0, 1}), outputs).ok());
  const auto sums = named.Take();
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].name, "on_b");
  EXPECT_EQ(sums[0].kind, "mean");
  EXPECT_THAT(sums[0].sums, ElementsAre(2, 2));
  EXPECT_THAT(named.Take()[0].sums, ElementsAre(0, 0));
}

TEST(ImageBatchTest, DecodesFloatsAndBytesIntoOneTensor) {
  data::ExampleBuilder floats;
  floats.SetFloats("image", {0, 51, 102, 255});
  floats.SetInt64("label", 7);
  data::ExampleBuilder bytes;
  bytes.SetBytes("image", absl::string_view("\x00\x33\x66\xff", 4));
  bytes.SetInt64("label", 8);
  const std::string records[] = {floats.Serialize(), bytes.Serialize()};
  const std::vector<absl::string_view> views(records, records + 2);
  ImageOptions options;
  options.shape = {1, 2, 2};
  const Batch batch = ImageBatch(views, Mode::kTraining, options);
  EXPECT_EQ(batch.features.tensor().sizes(),
            (std::vector<int64_t>{2, 1, 2, 2}));
  EXPECT_TRUE(batch.features.tensor()[0].equal(batch.features.tensor()[1]));
  EXPECT_FLOAT_EQ(batch.features.tensor()[0][0][0][1].item<float>(), 0.2f);
  EXPECT_TRUE(batch.labels.equal(Ids({7, 8})));
  EXPECT_FALSE(ImageBatch(views, Mode::kPrediction, options).labels.defined());
  options.shape = {1, 3, 3};
  EXPECT_THROW(ImageBatch(views, Mode::kTraining, options), std::runtime_error);
}

TEST(ImageBatchTest, ChannelsLastBecomesChannelsFirst) {
  data::ExampleBuilder builder;
  builder.SetFloats("image", {1, 2, 3, 4, 5, 6});  // 1 x 2 pixels, 3 channels
  builder.SetInt64("label", 0);
  const std::string record = builder.Serialize();
  ImageOptions options;
  options.shape = {3, 1, 2};
  options.channels_last = true;
  options.scale = 1;
  const std::vector<absl::string_view> views = {record};
  const Tensor image =
      ImageBatch(views, Mode::kTraining, options).features.tensor();
  EXPECT_TRUE(image.equal(
      torch::tensor({1., 4., 2., 5., 3., 6.}).reshape({1, 3, 1, 2})));
}

}  // namespace
}  // namespace elasticdl
