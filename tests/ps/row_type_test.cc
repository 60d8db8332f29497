// Values of 16 bits: there and back, nearest and at random.
#include "row_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace elasticdl::ps {
namespace {

float FromBits(RowType type, uint16_t bits) {
  char stored[2];
  std::memcpy(stored, &bits, 2);
  float value = 0;
  LoadValues(type, stored, &value, 1);
  return value;
}
uint16_t NearestBits(RowType type, float value) {
  char stored[2];
  StoreNearest(type, &value, stored, 1);
  uint16_t bits = 0;
  std::memcpy(&bits, stored, 2);
  return bits;
}
float Nearest(RowType type, float value) {
  return FromBits(type, NearestBits(type, value));
}
float Random(RowType type, uint64_t seed, float value) {
  char stored[2];
  StoreRandomly(type, seed, &value, stored, 1);
  float back = 0;
  LoadValues(type, stored, &back, 1);
  return back;
}

class RowTypeTest : public testing::TestWithParam<RowType> {};
INSTANTIATE_TEST_SUITE_P(Types, RowTypeTest,
                         testing::Values(RowType::kBfloat16,
                                         RowType::kFloat16));

TEST_P(RowTypeTest, WhatCanBeStoredIsStoredAsItIs) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromBits(GetParam(), static_cast<uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(NearestBits(GetParam(), value), bits) << value;
    ASSERT_EQ(Random(GetParam(), bits, value), value);
  }
}

// Against a search among all values that can be stored.
TEST_P(RowTypeTest, NearestIsNearest) {
  const uint64_t seed = 3;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<uint16_t>(random() % 0x7b00);
    const float low = FromBits(GetParam(), bits);
    const float high = FromBits(GetParam(), static_cast<uint16_t>(bits + 1));
    ASSERT_LT(low, high);
    const double part = std::uniform_real_distribution<double>(0, 1)(random);
    const auto value = static_cast<float>(low + part * (double{high} - low));
    const float stored = Nearest(GetParam(), value);
    const double to_low = double{value} - low;
    const double to_high = double{high} - value;
    if (to_low < to_high) {
      ASSERT_EQ(stored, low) << value;
    } else if (to_high < to_low) {
      ASSERT_EQ(stored, high) << value;
    } else {
      ASSERT_EQ(NearestBits(GetParam(), value) % 2, 0) << value;
    }
    ASSERT_EQ(Nearest(GetParam(), -value), -stored);
    const float either = Random(GetParam(), random(), value);
    ASSERT_TRUE(either == low || either == high) << value;
  }
}

TEST_P(RowTypeTest, RandomRoundingKeepsTheMean) {
  // A quarter of the way between two values: nearest would never go up.
  const float low = FromBits(GetParam(), NearestBits(GetParam(), 1.0f));
  const float high = FromBits(
      GetParam(), static_cast<uint16_t>(NearestBits(GetParam(), 1.0f) + 1));
  const float value = low + (high - low) / 4;
  EXPECT_EQ(Nearest(GetParam(), value), low);
  int up = 0;
  for (uint64_t seed = 0; seed < 40000; ++seed) {
    up += Random(GetParam(), seed * 977, value) == high ? 1 : 0;
  }
  EXPECT_NEAR(up, 10000, 500);
}

TEST_P(RowTypeTest, FiniteStaysFinite) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(Nearest(GetParam(), most)));
  EXPECT_TRUE(std::isfinite(Random(GetParam(), 1, -most)));
  EXPECT_LT(Random(GetParam(), 1, -most), -60000);
  EXPECT_EQ(Nearest(GetParam(), 0.0f), 0.0f);
  EXPECT_EQ(std::signbit(Nearest(GetParam(), -0.0f)), true);
}

TEST(RowTypeNamesTest, Parse) {
  EXPECT_EQ(*ParseRowType(""), RowType::kFloat32);
  EXPECT_EQ(*ParseRowType("bfloat16"), RowType::kBfloat16);
  EXPECT_EQ(*ParseRowType("float16"), RowType::kFloat16);
  EXPECT_FALSE(ParseRowType("int8").ok());
}

}  // namespace
}  // namespace elasticdl::ps
