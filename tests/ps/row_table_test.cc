// Rows of one bucket, against a std::map.
#include "row_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "elasticdl/ps/bucket.h"

namespace elasticdl::ps {
namespace {

constexpr uint64_t kTable = 0x1234567890abcdef;
const RowLayout kLayout = RowLayout::Make(kTable, 24);

TEST(RowTableTest, EmptyFindsNothing) {
  const RowTable table;
  EXPECT_EQ(table.Find(HashRow(kTable, 1), 1, kLayout), nullptr);
  EXPECT_EQ(table.Guess(HashRow(kTable, 1)), RowTable::kNoRow);
  table.PrefetchIndex(1);
}

TEST(RowTableTest, AgreesWithAMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    RowTable table;
    SlabArena arena(kLayout.slab_bytes());
    std::map<int64_t, int64_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const auto id = static_cast<int64_t>(random() % 6000) *
                      (seed % 2 == 0 ? 1 : 0x100000000);
      const uint64_t hash = HashRow(kTable, id);
      char* row = table.Find(hash, id, kLayout);
      EXPECT_EQ(row != nullptr, expected.count(id) == 1) << id;
      if (row == nullptr) {
        row = table.Add(hash, id, kLayout, arena);
        ASSERT_NE(row, nullptr);
      }
      EXPECT_NE(table.Guess(hash), RowTable::kNoRow);
      const auto value = static_cast<int64_t>(random());
      std::memcpy(row + 8, &value, sizeof(value));
      expected[id] = value;
    }
    EXPECT_EQ(table.rows(), expected.size());
    for (const auto& [id, value] : expected) {
      const char* row = table.Find(HashRow(kTable, id), id, kLayout);
      ASSERT_NE(row, nullptr);
      EXPECT_EQ(std::memcmp(row + 8, &value, sizeof(value)), 0);
    }
  }
}

// At most 16 bytes beside what the row holds.
TEST(RowTableTest, CostsLittle) {
  RowTable table;
  SlabArena arena(kLayout.slab_bytes());
  for (int64_t id = 0; id < 200000; ++id) {
    ASSERT_NE(table.Add(HashRow(kTable, id), id, kLayout, arena), nullptr);
    if (id < 1000) continue;
    // The id and the index.
    const double per_row = 8.0 + static_cast<double>(table.index_bytes()) /
                                     static_cast<double>(table.rows());
    ASSERT_LE(per_row, 16.0) << id;
  }
}

}  // namespace
}  // namespace elasticdl::ps
