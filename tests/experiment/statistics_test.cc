#include "elasticdl/experiment/statistics.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

TEST(StatisticsTest, EstimatesAMeanWithStudentsInterval) {
  // 1, 2, 3: standard error 1 / sqrt(3), t of 2 degrees of freedom 4.303.
  const Estimate estimate = EstimateMean({1, 2, 3});
  EXPECT_EQ(estimate.count, 3);
  EXPECT_DOUBLE_EQ(estimate.mean, 2);
  EXPECT_NEAR(estimate.high, 2 + 4.303 / std::sqrt(3), 1e-9);
  EXPECT_NEAR(estimate.low, 2 - 4.303 / std::sqrt(3), 1e-9);
}

TEST(StatisticsTest, OneValueIsItsOwnInterval) {
  const Estimate estimate = EstimateMean({7});
  EXPECT_EQ(estimate.low, 7);
  EXPECT_EQ(estimate.high, 7);
  EXPECT_EQ(EstimateMean({}).count, 0);
}

TEST(StatisticsTest, IntervalsHoldTheTruthAsOftenAsTheySay) {
  constexpr int kTrials = 4000;
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal(10, 3);
  int inside = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(5);
    for (double& value : values) value = normal(random);
    const Estimate estimate = EstimateMean(values);
    if (estimate.low <= 10 && 10 <= estimate.high) ++inside;
  }
  EXPECT_NEAR(inside / double{kTrials}, 0.95, 0.02);
}

TEST(StatisticsTest, PercentilesAreInterpolated) {
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile({4, 1, 3, 2}, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile({}, 50), 0);
}

TEST(StatisticsTest, YoungAndDalyAgreeWhenSavesAreCheap) {
  const CheckpointRestart cost = {1, 60};
  EXPECT_DOUBLE_EQ(YoungInterval(cost, 5000), 100);
  EXPECT_NEAR(DalyInterval(cost, 5000), 100, 1);
  // A save that takes longer than failures are apart is not made.
  EXPECT_DOUBLE_EQ(DalyInterval({100, 1}, 20), 20);
}

TEST(StatisticsTest, DalysIntervalIsTheBest) {
  for (const double save : {0.01, 0.3, 2.0}) {
    for (const double mtbf : {20.0, 100.0, 1000.0}) {
      const CheckpointRestart cost = {save, 5};
      const double best = BestCheckpointGoodput(cost, mtbf);
      const double interval = DalyInterval(cost, mtbf);
      EXPECT_GT(best, 0);
      EXPECT_LT(best, 1);
      for (const double factor : {0.3, 0.6, 1.7, 3.0}) {
        EXPECT_LE(CheckpointGoodput(cost, mtbf, interval * factor),
                  best * 1.0001)
            << "save " << save << " mtbf " << mtbf << " factor " << factor;
      }
    }
  }
}

// Plays checkpoint/restart with random failures and compares with the model.
TEST(StatisticsTest, TheModelIsWhatASimulationDoes) {
  constexpr uint64_t kSeed = 23;
  SCOPED_TRACE(kSeed);
  const CheckpointRestart cost = {0.5, 4};
  const double mtbf = 30;
  const double interval = DalyInterval(cost, mtbf);
  std::mt19937_64 random(kSeed);
  std::exponential_distribution<double> failure(1 / mtbf);
  double time = 0;
  int segments = 0;
  while (segments < 40000) {
    double left = failure(random);
    double needed = interval + cost.save;
    while (left < needed) {
      time += left;
      left = failure(random);
      // The restart may fail as well; it is part of what has to be repeated.
      needed = cost.restart + interval + cost.save;
      while (left < cost.restart) {
        time += left;
        left = failure(random);
      }
    }
    time += needed;
    ++segments;
  }
  const double simulated = segments * interval / time;
  EXPECT_NEAR(simulated, CheckpointGoodput(cost, mtbf, interval), 0.03);
}

}  // namespace
}  // namespace elasticdl::experiment
