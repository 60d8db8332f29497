// Rows of one bucket, against a std::map.
#include "row_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "elasticdl/ps/bucket.h"

namespace elasticdl::ps {
namespace {

const RowLayout kLayout = RowLayout::Make(16);
constexpr uint64_t kHashMask = (uint64_t{1} << kHashBits) - 1;

TEST(RowTableTest, EmptyFindsNothing) {
  const RowTable table;
  EXPECT_EQ(table.Find(HashRow(1, 1), kLayout), nullptr);
  EXPECT_EQ(table.index().FindAtHome(HashRow(1, 1)), RowTable::kNoRow);
  table.index().Prefetch(1);
  table.index().ForEach([](uint64_t, uint32_t) { FAIL(); });
}

std::vector<uint64_t> RandomHashes(std::mt19937_64& random, uint64_t seed) {
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 6000; ++i) {
    uint64_t hash = random() & kHashMask;
    // Crowds around a few homes, the last of which wrap, and neighbours.
    if (seed % 3 == 1 && i % 16 == 0) hash = kHashMask - random() % 1000;
    if (seed % 3 == 2 && i % 64 == 0) hash = random() % 64;
    hashes.push_back(hash);
  }
  return hashes;
}

TEST(RowTableTest, AgreesWithAMap) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<uint64_t> hashes = RandomHashes(random, seed);
    RowTable table;
    RowArenas arenas(kLayout.slab_bytes());
    if (seed % 2 == 0) table.Reserve(random() % 10000, arenas);
    std::map<uint64_t, uint64_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const uint64_t hash = hashes[random() % hashes.size()];
      char* row = table.Find(hash, kLayout);
      ASSERT_EQ(row != nullptr, expected.count(hash) == 1) << hash;
      if (row == nullptr) {
        row = table.Add(hash, kLayout, arenas);
        ASSERT_NE(row, nullptr);
      }
      const uint64_t value = random();
      std::memcpy(row + 8, &value, sizeof(value));
      expected[hash] = value;
      if (random() % 500 != 0) continue;
      // Some go.
      std::vector<uint32_t> numbers;
      for (uint32_t number = 0; number < table.rows(); ++number) {
        if (random() % 8 == 0) numbers.push_back(number);
      }
      table.index().ForEach([&](uint64_t found, uint32_t number) {
        if (std::binary_search(numbers.begin(), numbers.end(), number)) {
          expected.erase(found);
        }
      });
      table.Remove(numbers, kLayout, arenas);
    }
    ASSERT_EQ(table.rows(), expected.size());
    // In the order of the map, and the bucket's bits do not matter.
    auto next = expected.begin();
    size_t further = 0;
    table.index().ForEach([&](uint64_t hash, uint32_t number) {
      ASSERT_NE(next, expected.end());
      ASSERT_EQ(hash, next->first);
      const char* row = table.Find(hash | uint64_t{77} << kHashBits, kLayout);
      ASSERT_EQ(row, table.row(number, kLayout));
      const uint32_t at_home = table.index().FindAtHome(hash);
      if (at_home == RowTable::kFurther) {
        ++further;
      } else {
        ASSERT_EQ(at_home, number);
      }
      EXPECT_EQ(std::memcmp(row + 8, &next->second, 8), 0);
      ++next;
    });
    EXPECT_EQ(next, expected.end());
    // Unless there is room for many more.
    if (seed % 2 == 1) {
      EXPECT_GT(further, 0u);
    }
    EXPECT_LT(further, expected.size() / 2);
  }
}

// The memory of few rows is small, and follows from their number alone.
TEST(RowTableTest, FewRowsTakeLittle) {
  for (const size_t stride : {8, 136, 384, 4096, 10000}) {
    const RowLayout layout = RowLayout::Make(stride);
    RowArenas arenas(layout.slab_bytes());
    RowTable table;
    std::vector<uint64_t> values;
    const auto check = [&] {
      ASSERT_EQ(arenas.bytes, RowTable::BytesFor(table.rows(), layout));
      ASSERT_EQ(arenas.rows.used_bytes(),
                RowTable::SlabBytesFor(table.rows(), layout));
      ASSERT_GE(arenas.bytes, table.rows() * stride);
      ASSERT_LE(arenas.bytes,
                table.rows() * stride +
                    std::min(table.rows() * stride, layout.slab_bytes()) + 256);
      for (uint32_t i = 0; i < table.rows(); ++i) {
        ASSERT_EQ(std::memcmp(table.row(i, layout), &values[i], 8), 0);
      }
    };
    std::mt19937_64 random(stride);
    for (int round = 0; round < 40; ++round) {
      while (table.rows() < (1u << layout.slab_shift) * 5 / 2 + 1) {
        const uint64_t value = random();
        char* row = table.Add(random() & kHashMask, layout, arenas);
        ASSERT_NE(row, nullptr);
        std::memcpy(row, &value, 8);
        values.push_back(value);
        check();
        if (random() % 16 == 0) break;
      }
      std::vector<uint32_t> gone;
      const uint64_t share = random() % 20;
      for (uint32_t i = 0; i < table.rows(); ++i) {
        if (random() % 20 < share) gone.push_back(i);
      }
      table.Remove(gone, layout, arenas);
      // The last ones take the places of those that go, as there.
      for (auto it = gone.rbegin(); it != gone.rend(); ++it) {
        values[*it] = values.back();
        values.pop_back();
      }
      check();
    }
    table.Clear(layout, arenas);
    EXPECT_EQ(arenas.bytes, 0u);
  }
}

// Nobody's ids have such hashes by chance. Rows that were there stay.
TEST(RowTableTest, RefusesWhatHasNoPlace) {
  RowTable table;
  RowArenas arenas(kLayout.slab_bytes());
  uint64_t added = 0;
  while (table.Add(added, kLayout, arenas) != nullptr) {
    ASSERT_LT(++added, 1000u);
  }
  EXPECT_EQ(added, 64 * 8u);
  EXPECT_EQ(table.rows(), added);
  for (uint64_t hash = 0; hash < added; ++hash) {
    ASSERT_EQ(table.index().Find(hash), hash);
  }
  EXPECT_EQ(table.Find(added, kLayout), nullptr);
  EXPECT_NE(table.Add(kHashMask, kLayout, arenas), nullptr);
  EXPECT_LT(table.index_bytes(), 1000000u);
}

// At most 16 bytes beside what the row holds.
TEST(RowTableTest, CostsLittle) {
  RowTable table;
  RowArenas arenas(kLayout.slab_bytes());
  for (int64_t id = 0; id < 200000; ++id) {
    ASSERT_NE(table.Add(HashRow(1, id), kLayout, arenas), nullptr);
    if (id < 1000) continue;
    const double per_row = static_cast<double>(table.index_bytes()) /
                           static_cast<double>(table.rows());
    ASSERT_LE(per_row, 16.0) << id;
  }
}

// A free entry of the index looks like its key.
TEST(RowTableTest, FindsTheRowWhoseHashIsZero) {
  RowTable table;
  RowArenas arenas(kLayout.slab_bytes());
  ASSERT_NE(table.Add(0, kLayout, arenas), nullptr);
  EXPECT_NE(table.Find(0, kLayout), nullptr);
  for (uint64_t id = 0; id < 1000; ++id) {
    const uint64_t hash = HashRow(1, static_cast<int64_t>(id)) & kHashMask;
    EXPECT_EQ(table.Find(hash, kLayout), nullptr);
    ASSERT_NE(table.Add(hash, kLayout, arenas), nullptr);
    EXPECT_NE(table.Find(0, kLayout), nullptr) << id;
    EXPECT_NE(table.Find(hash, kLayout), nullptr) << id;
  }
}

TEST(RowTableTest, HashesTellIds) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t table = random();
    const auto id = static_cast<int64_t>(random());
    EXPECT_EQ(IdOfHash(table, HashRow(table, id)), id);
  }
}

}  // namespace
}  // namespace elasticdl::ps
