// Initial values of rows.
#include "elasticdl/ps/initializer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elasticdl/ps/bucket.h"

namespace elasticdl::ps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> Many(const std::string& text, size_t dim, int rows) {
  const auto initializer = Initializer::Parse(text);
  EXPECT_TRUE(initializer.ok()) << initializer.status();
  std::vector<float> values(dim * static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) {
    initializer->Fill(7, HashRow(HashName("t"), i),
                      values.data() + dim * static_cast<size_t>(i), dim);
  }
  return values;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double most = 0;
};
Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  double squares = 0;
  for (const float value : values) {
    m.mean += value;
    squares += static_cast<double>(value) * value;
    m.most = std::max(m.most, std::fabs(static_cast<double>(value)));
  }
  const auto n = static_cast<double>(values.size());
  m.mean /= n;
  m.deviation = std::sqrt(squares / n - m.mean * m.mean);
  return m;
}

TEST(InitializerTest, Constants) {
  EXPECT_THAT(Many("zeros", 3, 4), Each(0.0f));
  EXPECT_THAT(Many("", 3, 4), Each(0.0f));
  EXPECT_THAT(Many("Ones", 3, 4), Each(1.0f));
  EXPECT_THAT(Many("constant(0.5)", 3, 4), Each(0.5f));
  EXPECT_THAT(Many("Constant(value=-2)", 3, 4), Each(-2.0f));
}

TEST(InitializerTest, DistributionsHaveTheirMoments) {
  struct Case {
    const char* text;
    double mean;
    double deviation;
    double most;
  };
  const double cut = 0.87962566103423978;
  for (const Case& c : std::vector<Case>{
           {"uniform", 0, 0.05 / std::sqrt(3), 0.05},
           {"RandomUniform", 0, 0.05 / std::sqrt(3), 0.05},
           {"uniform(0.1)", 0, 0.1 / std::sqrt(3), 0.1},
           {"uniform(1,3)", 2, 1 / std::sqrt(3), 3},
           {"normal", 0, 0.05, 0.05 * 6},
           {"random_normal(2)", 0, 2, 12},
           {"RandomNormal(mean=3, stddev=0.5)", 3, 0.5, 6},
           {"RandomUniform(minval=-1, maxval=2)", 0.5, 3 / std::sqrt(12), 2},
           {"truncated_normal(1)", 0, cut, 2},
           {"glorot_uniform", 0, std::sqrt(1.0 / 8), std::sqrt(3.0 / 8)},
           {"glorot_normal", 0, std::sqrt(1.0 / 8),
            2 * std::sqrt(1.0 / 8) / cut},
           {"he_uniform", 0, std::sqrt(2.0 / 8), std::sqrt(6.0 / 8)},
           {"HeNormal", 0, std::sqrt(2.0 / 8), 2 * std::sqrt(2.0 / 8) / cut}}) {
    const Moments m = MomentsOf(Many(c.text, 8, 50000));
    EXPECT_NEAR(m.mean, c.mean, 0.01 * c.deviation) << c.text;
    EXPECT_NEAR(m.deviation, c.deviation, 0.01 * c.deviation) << c.text;
    EXPECT_LE(m.most, c.most * 1.000001) << c.text;
    EXPECT_GE(m.most, 0.6 * c.most) << c.text;
  }
}

// A row is the same wherever it is made; another id, table or seed is not.
TEST(InitializerTest, DependsOnSeedTableAndId) {
  const auto initializer = *Initializer::Parse("normal");
  const auto row = [&](uint64_t seed, const char* table, int64_t id) {
    std::vector<float> values(4);
    initializer.Fill(seed, HashRow(HashName(table), id), values.data(), 4);
    return values;
  };
  EXPECT_EQ(row(1, "a", -5), row(1, "a", -5));
  EXPECT_NE(row(1, "a", -5), row(2, "a", -5));
  EXPECT_NE(row(1, "a", -5), row(1, "b", -5));
  EXPECT_NE(row(1, "a", -5), row(1, "a", 5));
}

// A log that is replayed by another version must find the same rows.
TEST(InitializerTest, StaysAsItIs) {
  float values[2] = {};
  Initializer::Parse("uniform")->Fill(1, HashRow(HashName("t"), 42), values, 2);
  EXPECT_EQ(values[0], 0.031109689f);
  EXPECT_EQ(values[1], -0.022965062f);
}

TEST(InitializerTest, ErrorsNameWhatIsWrong) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{
           {"orthogonal", "is not known"},
           {"uniform(1", "no ')'"},
           {"uniform(x)", "'x' is not a number"},
           {"uniform(nan)", "is not a number"},
           {"uniform(1,2,3)", "too many"},
           {"zeros(1)", "too many"},
           {"normal(scale=1)", "no argument 'scale'"},
           {"constant", "one argument"}}) {
    const auto initializer = Initializer::Parse(text);
    EXPECT_THAT(std::string(initializer.status().message()), HasSubstr(why));
  }
}

TEST(InitializerTest, TextAndBack) {
  for (const char* text :
       {"zeros", "ones", "constant(3)", "uniform", "normal(2)",
        "truncated_normal", "he_normal", "glorot_uniform"}) {
    const auto once = *Initializer::Parse(text);
    EXPECT_EQ(Initializer::Parse(once.ToString())->ToString(), once.ToString());
  }
}

}  // namespace
}  // namespace elasticdl::ps
