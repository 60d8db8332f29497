#include "elasticdl/experiment/trace.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TraceSpec Random(double mtbf, double shape) {
  TraceSpec spec;
  spec.mtbf = mtbf;
  spec.shape = shape;
  return spec;
}

std::vector<double> Gaps(const std::vector<Action>& actions) {
  std::vector<double> gaps;
  double before = 0;
  for (const Action& action : actions) {
    gaps.push_back(action.at - before);
    before = action.at;
  }
  return gaps;
}

// Mean and coefficient of variation.
std::pair<double, double> Moments(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST(TraceTest, PoissonHasTheMeanAndTheSpreadOfOne) {
  const auto actions = DrawActions(Random(2, 1), 1, 60000);
  const auto [mean, variation] = Moments(Gaps(actions));
  EXPECT_NEAR(mean, 2, 0.05);
  EXPECT_NEAR(variation, 1, 0.03);
}

TEST(TraceTest, WeibullOfSmallShapeComesInBursts) {
  const auto [mean, variation] =
      Moments(Gaps(DrawActions(Random(2, 0.7), 1, 60000)));
  EXPECT_NEAR(mean, 2, 0.08);
  // sqrt(Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1) for k = 0.7.
  EXPECT_NEAR(variation, 1.46, 0.08);
}

TEST(TraceTest, TheSameSeedGivesTheSameTrace) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const TraceSpec spec = Random(0.5 + static_cast<double>(seed), 0.7);
    const auto a = DrawActions(spec, seed, 500);
    const auto b = DrawActions(spec, seed, 500);
    ASSERT_EQ(TraceCsv(a), TraceCsv(b)) << "seed " << seed;
    double before = 0;
    for (const Action& action : a) {
      ASSERT_GE(action.at, before) << "seed " << seed;
      ASSERT_LT(action.at, 500) << "seed " << seed;
      ASSERT_GE(action.pick, 0);
      ASSERT_LT(action.pick, 1);
      before = action.at;
    }
  }
}

TEST(TraceTest, LongerRunsContinueTheTraceOfShorterOnes) {
  const auto some = DrawActions(Random(3, 1), 7, 30);
  const auto more = DrawActions(Random(3, 1), 7, 90);
  ASSERT_GT(more.size(), some.size());
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i].at, more[i].at);
}

TEST(TraceTest, ATinyMtbfStaysBounded) {
  EXPECT_THAT(DrawActions(Random(1e-6, 1), 1, 1e6), SizeIs(100000));
}

TEST(TraceTest, ReadsWhatItWrites) {
  const auto actions = DrawActions(Random(4, 1), 3, 100);
  const auto again = ParseTraceCsv("t.csv", TraceCsv(actions), 1);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(TraceCsv(*again), TraceCsv(actions));
}

TEST(TraceTest, ReplaysFaster) {
  const auto actions = ParseTraceCsv(
      "t.csv", "# days\ntime,action,count\n1h,preempt,2\n30m,kill\n", 3600);
  ASSERT_TRUE(actions.ok()) << actions.status();
  ASSERT_THAT(*actions, SizeIs(2));
  EXPECT_DOUBLE_EQ((*actions)[0].at, 0.5);
  EXPECT_EQ((*actions)[0].kind, ActionKind::kKill);
  EXPECT_DOUBLE_EQ((*actions)[1].at, 1);
  EXPECT_EQ((*actions)[1].count, 2);
}

TEST(TraceTest, BadLinesAreNamed) {
  const struct {
    const char* text;
    const char* line;
    const char* message;
  } cases[] = {
      {"time,action\n5,explode\n", "t.csv:2: ", "unknown action 'explode'"},
      {"5,kill\nsoon,kill\n", "t.csv:2: ", "'soon' is not a time"},
      {"5\n", "t.csv:1: ", "found 1 fields"},
      {"5,kill,0\n", "t.csv:1: ", "count '0'"},
      {"-5,kill\n", "t.csv:1: ", "negative"},
      {"nan,kill\n", "t.csv:1: ", "negative or endless"},
      {"time,action\n", "t.csv:2: ", "no actions"},
  };
  for (const auto& one : cases) {
    const auto actions = ParseTraceCsv("t.csv", one.text, 1);
    ASSERT_FALSE(actions.ok()) << one.text;
    EXPECT_THAT(std::string(actions.status().message()),
                AllOf(StartsWith(one.line), HasSubstr(one.message)));
  }
}

}  // namespace
}  // namespace elasticdl::experiment
