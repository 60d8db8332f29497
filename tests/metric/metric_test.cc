#include "elasticdl/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace elasticdl::metric {
namespace {

// The probability that a random positive scores above a random negative, ties
// counting half: the definition of AUC, in quadratic time.
double AucByPairs(const std::vector<int>& score,
                  const std::vector<bool>& truth) {
  double wins = 0;
  double pairs = 0;
  for (size_t i = 0; i < score.size(); ++i) {
    for (size_t j = 0; j < score.size(); ++j) {
      if (!truth[i] || truth[j]) continue;
      ++pairs;
      wins += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
    }
  }
  return wins / pairs;
}

TEST(MetricTest, MakesMeansAndSums) {
  EXPECT_DOUBLE_EQ(*Value(kMean, {6, 4}), 1.5);
  EXPECT_DOUBLE_EQ(*Value(kSqrtMean, {36, 4}), 3);
  EXPECT_DOUBLE_EQ(*Value(kSum, {7.5}), 7.5);
}

TEST(MetricTest, AucEqualsComparingAllPairs) {
  constexpr int kBins = 20;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<int> scores;
    std::vector<bool> truth;
    std::vector<double> sums(2 * kBins);
    for (int i = 0; i < 100; ++i) {
      truth.push_back(i == 0 || (i != 1 && random() % 3 == 0));
      scores.push_back((random() % kBins + (truth[i] ? 4 : 0)) % kBins);
      ++sums[scores[i] + (truth[i] ? 0 : kBins)];
    }
    EXPECT_NEAR(*Value(kAuc, sums), AucByPairs(scores, truth), 1e-12);
  }
}

TEST(MetricTest, AucOfPerfectUselessAndReversedScores) {
  EXPECT_DOUBLE_EQ(*Value(kAuc, {0, 5, 9, 0}), 1);
  EXPECT_DOUBLE_EQ(*Value(kAuc, {5, 9}), 0.5);
  EXPECT_DOUBLE_EQ(*Value(kAuc, {5, 0, 0, 9}), 0);
}

TEST(MetricTest, AucAddsUpOverWorkers) {
  const std::vector<double> one = {1, 2, 3, 3, 1, 0};
  const std::vector<double> two = {0, 0, 4, 2, 2, 1};
  std::vector<double> both(6);
  for (int i = 0; i < 6; ++i) both[i] = one[i] + two[i];
  // Nine or so points on each side, counted by hand: 1,2,7 against 5,3,1.
  EXPECT_NEAR(*Value(kAuc, both), (1 * 2.5 + 2 * 6.5 + 7 * 8.5) / 90, 1e-12);
}

TEST(MetricTest, NoDataIsNotANumber) {
  EXPECT_TRUE(std::isnan(*Value(kMean, {0, 0})));
  EXPECT_TRUE(std::isnan(*Value(kSqrtMean, {0, 0})));
  EXPECT_TRUE(std::isnan(*Value(kAuc, {0, 0, 3, 4})));
  EXPECT_TRUE(std::isnan(*Value(kAuc, {3, 4, 0, 0})));
}

TEST(MetricTest, RefusesUnknownKindsAndWrongLengths) {
  const std::vector<std::pair<std::string, std::vector<double>>> bad = {
      {"median", {1, 2}}, {"", {1}},         {"mean", {1}},
      {"mean", {}},       {"sum", {1, 2}},   {"sqrt_mean", {1, 2, 3}},
      {"auc", {}},        {"auc", {1, 2, 3}}};
  for (const auto& [kind, sums] : bad) {
    const auto value = Value(kind, sums);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(value.status().message().find("'" + kind + "'"),
              std::string::npos)
        << value.status();
  }
}

}  // namespace
}  // namespace elasticdl::metric
