// Counts of ids in little memory, against a std::map.
#include "sightings.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "elasticdl/common/hash.h"

namespace elasticdl::ps {
namespace {

TEST(SightingsTest, AgreesWithAMapUntilItIsFull) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int enough = 2 + static_cast<int>(random() % 6);
    Sightings sightings;
    std::map<uint64_t, int> exact;
    int wrong = 0;
    for (int i = 0; i < 20000; ++i) {
      const uint64_t hash = MixHash(random() % 3000);
      const bool expected = ++exact[hash] >= enough;
      if (expected) exact.erase(hash);
      wrong += sightings.Add(hash, enough) != expected ? 1 : 0;
      ASSERT_LE(sightings.bytes(), Sightings::kMostBytes);
      if (i % 500 == 0) {
        ASSERT_TRUE(Sightings::IsValid(sightings.data()));
      }
    }
    // Hashes that agree in their last 24 bits.
    EXPECT_LE(wrong, 20);
  }
}

TEST(SightingsTest, ForgetsIdsThatWereSeenOnce) {
  Sightings sightings;
  EXPECT_FALSE(sightings.Add(MixHash(1), 2));
  int early = 0;
  for (uint64_t id = 0; id < 100000; ++id) {
    early += sightings.Add(MixHash(id + 1000), 2) ? 1 : 0;
  }
  EXPECT_EQ(sightings.bytes(), Sightings::kMostBytes);
  EXPECT_TRUE(Sightings::IsValid(sightings.data()));
  // All were seen once; some look like another.
  EXPECT_LT(early, 100);
  EXPECT_FALSE(sightings.Add(MixHash(1), 2));
}

TEST(SightingsTest, ACopyGoesOnAlike) {
  Sightings one;
  for (uint64_t id = 0; id < 5000; ++id) one.Add(MixHash(id % 700), 9);
  Sightings other;
  other.Restore(one.data());
  for (uint64_t id = 0; id < 20000; ++id) {
    ASSERT_EQ(one.Add(MixHash(id * 7 % 9000), 4),
              other.Add(MixHash(id * 7 % 9000), 4));
  }
  EXPECT_EQ(one.data(), other.data());
}

TEST(SightingsTest, OnceIsEnough) {
  Sightings sightings;
  EXPECT_TRUE(sightings.Add(5, 1));
  EXPECT_TRUE(sightings.Add(5, 1));
}

TEST(SightingsTest, WhatCannotBeSightings) {
  EXPECT_TRUE(Sightings::IsValid(""));
  EXPECT_TRUE(Sightings::IsValid(std::string(8 + 64, '\0')));
  EXPECT_FALSE(Sightings::IsValid(std::string(8, '\0')));
  EXPECT_FALSE(Sightings::IsValid(std::string(8 + 200, '\0')));
  EXPECT_FALSE(Sightings::IsValid(std::string(8 + (64 << 10), '\0')));
  // Full, or another number of entries than it says: probing would not end.
  EXPECT_FALSE(Sightings::IsValid(std::string(8 + 64, 'x')));
  std::string full(8 + 64, 'x');
  full.replace(0, 8, std::string("\x10\0\0\0\0\0\0\0", 8));
  EXPECT_FALSE(Sightings::IsValid(full));
}

}  // namespace
}  // namespace elasticdl::ps
