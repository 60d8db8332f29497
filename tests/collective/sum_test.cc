#include "core/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace elasticdl::collective {
namespace {

uint16_t Upper(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

float FromUpper(uint16_t upper) {
  const uint32_t bits = uint32_t{upper} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// To nearest, ties to even, by the definition.
uint16_t Rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t rest = bits & 0xFFFF;
  uint32_t upper = bits >> 16;
  if (rest > 0x8000 || (rest == 0x8000 && (upper & 1) != 0)) ++upper;
  return static_cast<uint16_t>(upper);
}

uint16_t SumBFloat16(uint16_t a, uint16_t b) {
  const void* const in[] = {&a, &b};
  uint16_t out = 0;
  Sum(in, 2, &out, nullptr, 1, DataType::kBFloat16);
  return out;
}

TEST(SumTest, AddsAnyNumberOfArraysOfAnyLengthInOrder) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1e6, 1e6);
  for (int n = 1; n <= 9; ++n) {
    for (size_t count = 0; count < 70; ++count) {
      std::vector<std::vector<float>> arrays(n, std::vector<float>(count));
      std::vector<const void*> in;
      for (std::vector<float>& array : arrays) {
        for (float& value : array) value = values(random);
        in.push_back(array.data());
      }
      std::vector<float> expected(count);
      for (size_t i = 0; i < count; ++i) {
        float sum = arrays[0][i];
        for (int k = 1; k < n; ++k) sum += arrays[k][i];
        expected[i] = sum;
      }
      // One more element, to see that it is left alone.
      std::vector<float> out(count + 1, 7);
      std::vector<float> copy(count + 1, 8);
      Sum(in.data(), n, out.data(), copy.data(), count, DataType::kFloat32);
      EXPECT_EQ(out.back(), 7);
      EXPECT_EQ(copy.back(), 8);
      out.pop_back();
      copy.pop_back();
      ASSERT_EQ(out, expected) << n << " arrays of " << count;
      ASSERT_EQ(copy, expected) << n << " arrays of " << count;
    }
  }
}

TEST(SumTest, OutputMayBeAnInput) {
  std::vector<int64_t> a(1001, 1);
  const std::vector<int64_t> b(1001, int64_t{1} << 40);
  const void* const in[] = {b.data(), a.data()};
  Sum(in, 2, a.data(), nullptr, a.size(), DataType::kInt64);
  for (const int64_t value : a) ASSERT_EQ(value, (int64_t{1} << 40) + 1);
}

TEST(SumTest, BFloat16IsAddedInFloatAndRoundedToEven) {
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<uint16_t>(random());
    const auto b = static_cast<uint16_t>(random());
    const float sum = FromUpper(a) + FromUpper(b);
    const uint16_t got = SumBFloat16(a, b);
    if (std::isnan(sum)) {
      ASSERT_TRUE(std::isnan(FromUpper(got))) << a << " + " << b;
    } else {
      ASSERT_EQ(got, Rounded(sum)) << a << " + " << b;
    }
  }
  // A NaN whose upper half alone would be infinite.
  EXPECT_TRUE(std::isnan(FromUpper(SumBFloat16(0x7F81, Upper(1)))));
  EXPECT_EQ(FromUpper(SumBFloat16(Upper(3e38F), Upper(3e38F))),
            std::numeric_limits<float>::infinity());
}

TEST(SumTest, Float16) {
  // 1.5 + 2.25, 65504 + 65504, -1 + 1, the smallest normal twice.
  const uint16_t a[] = {0x3E00, 0x7BFF, 0xBC00, 0x0400};
  const uint16_t b[] = {0x4080, 0x7BFF, 0x3C00, 0x0400};
  const uint16_t expected[] = {0x4380, 0x7C00, 0x0000, 0x0800};
  const void* const in[] = {a, b};
  uint16_t out[4] = {};
  Sum(in, 2, out, nullptr, 4, DataType::kFloat16);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

}  // namespace
}  // namespace elasticdl::collective
