#include "id_sources.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace elasticdl::worker {
namespace {

torch::Tensor Ids(const std::vector<int64_t>& ids) {
  return torch::tensor(ids, torch::kLong);
}

std::vector<int64_t> ToVector(const torch::Tensor& ids) {
  const auto* data = ids.data_ptr<int64_t>();
  return {data, data + ids.numel()};
}

TEST(IdSourcesTest, KnowsNothingAtFirst) {
  EXPECT_TRUE(IdSources().Predict(Features(Ids({1, 2}))).empty());
}

TEST(IdSourcesTest, LearnsWhichFeatureFeedsWhichTable) {
  IdSources sources;
  const Features first({{"x", torch::rand({2, 3})},
                        {"user", Ids({5, 3, 5})},
                        {"item", Ids({8, 7, 9}).reshape({3, 1})}});
  sources.Learn(first, {{1, Ids({3, 5})}, {0, Ids({7, 8, 9})}});
  const Features second({{"x", torch::rand({2, 3})},
                         {"user", Ids({2, 1, 2})},
                         {"item", Ids({4, 4, 4}).reshape({3, 1})}});
  const auto predicted = sources.Predict(second);
  ASSERT_EQ(predicted.size(), 2u);
  EXPECT_EQ(predicted[0].table, 0u);
  EXPECT_EQ(ToVector(predicted[0].ids), (std::vector<int64_t>{4}));
  EXPECT_EQ(predicted[1].table, 1u);
  EXPECT_EQ(ToVector(predicted[1].ids), (std::vector<int64_t>{1, 2}));
}

TEST(IdSourcesTest, PaddingIsNoId) {
  IdSources sources;
  sources.Learn(Features(Ids({0, 4, -1, 6})), {{0, Ids({4, 6})}});
  const auto predicted = sources.Predict(Features(Ids({-7, 0, 1, 1})));
  ASSERT_EQ(predicted.size(), 1u);
  EXPECT_EQ(ToVector(predicted[0].ids), (std::vector<int64_t>{1}));
  EXPECT_TRUE(sources.Predict(Features(Ids({0, 0}))).empty());
}

TEST(IdSourcesTest, AColumnMayFeedATable) {
  IdSources sources;
  const auto matrix = [](const std::vector<int64_t>& ids) {
    return Features(Ids(ids).reshape({2, 2}));
  };
  sources.Learn(matrix({1, 20, 3, 40}), {{0, Ids({1, 3})}, {1, Ids({20, 40})}});
  const auto predicted = sources.Predict(matrix({5, 60, 5, 70}));
  ASSERT_EQ(predicted.size(), 2u);
  EXPECT_EQ(ToVector(predicted[0].ids), (std::vector<int64_t>{5}));
  EXPECT_EQ(ToVector(predicted[1].ids), (std::vector<int64_t>{60, 70}));
}

// A table of two features gets one request.
TEST(IdSourcesTest, UsesOfOneTableAreOnePrediction) {
  IdSources sources;
  sources.Learn(Features({{"a", Ids({1, 2})}, {"b", Ids({7, 8})}}),
                {{0, Ids({1, 2})}, {0, Ids({7, 8})}});
  const auto predicted =
      sources.Predict(Features({{"a", Ids({4, 3})}, {"b", Ids({3, 9})}}));
  ASSERT_EQ(predicted.size(), 1u);
  EXPECT_EQ(ToVector(predicted[0].ids), (std::vector<int64_t>{3, 4, 9}));
}

TEST(IdSourcesTest, WhatWasRightByChanceIsForgotten) {
  IdSources sources;
  // Both features have these ids; the wrong one comes first.
  sources.Learn(Features({{"a", Ids({1, 2})}, {"b", Ids({2, 1})}}),
                {{0, Ids({1, 2})}});
  sources.Learn(Features({{"a", Ids({5})}, {"b", Ids({6})}}), {{0, Ids({6})}});
  const auto predicted =
      sources.Predict(Features({{"a", Ids({7})}, {"b", Ids({8})}}));
  ASSERT_EQ(predicted.size(), 1u);
  EXPECT_EQ(ToVector(predicted[0].ids), (std::vector<int64_t>{8}));
}

TEST(IdSourcesTest, IdsThatTheModelComputesAreNotGuessed) {
  IdSources sources;
  for (int64_t i = 0; i < 20; ++i) {
    sources.Learn(Features(Ids({i})), {{0, Ids({i + 1000})}});
  }
  EXPECT_TRUE(sources.Predict(Features(Ids({3}))).empty());
}

}  // namespace
}  // namespace elasticdl::worker
