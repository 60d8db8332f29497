// Many threads give the same bits as one push after the other.
#include "row_replay.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/optim.h"

namespace elasticdl::ps {
namespace {

struct Push {
  size_t table = 0;
  std::vector<int64_t> ids;
  std::vector<float> values;
  double rate = 0;
  int64_t step = 0;
};

class RowReplayTest : public testing::Test {
 protected:
  using Tables = std::vector<std::unique_ptr<EmbeddingTable>>;

  Tables MakeTables() const {
    Tables tables;
    for (const RowType type :
         {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat32}) {
      EmbeddingTable::Options options;
      options.name = absl::StrCat("table ", tables.size());
      options.dim = 3 + 5 * tables.size();
      options.type = type;
      options.seed = 7;
      options.initializer = *Initializer::Parse("uniform");
      tables.push_back(std::make_unique<EmbeddingTable>(options, *optimizer_));
    }
    return tables;
  }
  // Some ids in nearly all pushes, many in few; now and then a large one.
  std::vector<Push> MakePushes(const Tables& tables, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Push> pushes;
    for (int i = 0; i < 400; ++i) {
      Push push;
      push.table = random() % tables.size();
      const size_t most = i % 100 == 0 ? 50000 : random() % 500;
      std::set<int64_t> ids;
      for (size_t k = 0; k < most; ++k) {
        ids.insert(
            static_cast<int64_t>(random() % (random() % 2 ? 300 : 200000)));
      }
      push.ids.assign(ids.begin(), ids.end());
      std::uniform_real_distribution<float> value(-1, 1);
      for (size_t k = 0; k < ids.size() * tables[push.table]->dim(); ++k) {
        push.values.push_back(value(random));
      }
      push.rate = 0.001 * static_cast<double>(1 + i % 7);
      push.step = i + 1;
      pushes.push_back(std::move(push));
    }
    return pushes;
  }
  static std::string BytesOf(const EmbeddingTable& table) {
    std::string bytes = absl::StrCat(table.rows(), " ", table.bytes(), " ");
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      table.ForEach(bucket, [&](int64_t id, const char* row) {
        bytes.append(reinterpret_cast<const char*>(&id), sizeof(id));
        bytes.append(row, table.row_bytes());
      });
    }
    return bytes;
  }

  const std::unique_ptr<optim::Optimizer> optimizer_ =
      *optim::Optimizer::Create(*optim::OptimizerSpec::Parse("Adam"));
};

TEST_F(RowReplayTest, GivesTheBitsOfOneThread) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Tables expected = MakeTables();
    const std::vector<Push> pushes = MakePushes(expected, seed);
    for (const Push& push : pushes) {
      ASSERT_TRUE(expected[push.table]
                      ->Push(push.ids, push.values.data(), push.rate, push.step)
                      .ok());
    }
    const Tables tables = MakeTables();
    std::mt19937_64 random(seed);
    {
      RowReplay replay;
      for (const Push& push : pushes) {
        replay.Add(*tables[push.table], push.ids, push.values.data(), push.rate,
                   push.step);
        // As Apply does where it matters.
        if (random() % 50 == 0) {
          ASSERT_TRUE(replay.Finish().ok());
        }
      }
      ASSERT_TRUE(replay.Finish().ok());
    }
    for (size_t t = 0; t < tables.size(); ++t) {
      EXPECT_TRUE(BytesOf(*tables[t]) == BytesOf(*expected[t]))
          << "table " << t;
    }
  }
}

// The log has a bad entry: what was collected is dropped, and nobody uses it
// any more.
TEST_F(RowReplayTest, EndsAtAnyTime) {
  const Tables tables = MakeTables();
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<Push> pushes = MakePushes(tables, seed);
    RowReplay replay;
    for (const Push& push : pushes) {
      replay.Add(*tables[push.table], push.ids, push.values.data(), push.rate,
                 push.step);
    }
  }
}

}  // namespace
}  // namespace elasticdl::ps
