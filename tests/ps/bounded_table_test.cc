// Tables that do not keep everything, and tables of 16 bits: the same pushes
// give the same bits, whatever happens to the server in between.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "model.h"
#include "push_log.h"
#include "server_state.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

// Two rows per bucket.
constexpr int64_t kMaxRows = 2 * kBuckets;

struct Bounds {
  const char* name;
  const char* dtype;
  int64_t max_rows;
  const char* eviction;
  int min_count;
};
const Bounds kBounds[] = {
    {"Age", "float32", kMaxRows, "age", 0},
    {"Frequency", "float32", kMaxRows, "frequency", 0},
    {"MinCount", "float32", 0, "", 3},
    {"Bfloat16", "bfloat16", 0, "", 0},
    {"Float16", "float16", 0, "", 0},
    {"AllOfIt", "bfloat16", kMaxRows, "frequency", 2},
};

v1::PsDefinition MakeDefinition(const Bounds& bounds) {
  v1::PsDefinition definition;
  definition.set_optimizer("Adagrad(lr=0.1)");
  definition.set_seed(7);
  auto& dense = *definition.add_dense();
  dense.set_name("dense");
  dense.add_shape(40);
  for (const int dim : {3, 8}) {
    auto& table = *definition.add_tables();
    table.set_name(absl::StrCat("table", dim));
    table.set_dim(dim);
    table.set_initializer("uniform");
    table.set_dtype(bounds.dtype);
    table.set_max_rows(bounds.max_rows);
    table.set_eviction(bounds.eviction);
    table.set_min_count(bounds.min_count);
  }
  return definition;
}

// Some ids often, many seldom.
Gradient MakeGradient(const v1::PsDefinition& definition, int64_t number,
                      std::mt19937_64& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  Gradient gradient;
  gradient.name.set_shard("s");
  gradient.name.set_begin(number * 8);
  gradient.name.set_end(number * 8 + 8);
  gradient.dense.assign(40, 0.5f);
  for (const auto& table : definition.tables()) {
    std::set<int64_t> ids;
    while (ids.size() < 300) {
      ids.insert(static_cast<int64_t>(random() % (random() % 2 ? 500 : 9000)));
    }
    gradient.ids.emplace_back(ids.begin(), ids.end());
    auto& rows = gradient.rows.emplace_back(ids.size() *
                                            static_cast<size_t>(table.dim()));
    for (float& v : rows) v = value(random);
  }
  return gradient;
}

absl::Status Feed(ServerState& state, const EntryBytes& bytes) {
  const absl::Status checked = state.Check(bytes.entry, bytes.payload);
  return checked.ok() ? state.Apply(bytes.entry, bytes.payload) : checked;
}

void Begin(ServerState& state, const v1::PsDefinition& definition,
           const BucketMap& map, int server) {
  v1::PsEntry entry;
  *entry.mutable_definition() = definition;
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  *entry.mutable_map() = ToProto(map);
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  ASSERT_TRUE(Feed(state, InitialPart(definition, map, server)).ok());
}

class BoundedTableTest : public testing::TestWithParam<Bounds> {
 protected:
  const v1::PsDefinition definition_ = MakeDefinition(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Bounds, BoundedTableTest, testing::ValuesIn(kBounds),
                         [](const auto& info) { return info.param.name; });

// What is in a bucket, whatever the order.
using Contents = std::tuple<std::set<std::string>, std::string>;
Contents ContentsOf(const EmbeddingTable& table, int bucket) {
  std::set<std::string> rows;
  table.ForEach(bucket, [&](int64_t id, const char* row) {
    rows.insert(absl::StrCat(id, " ", std::string(row, table.row_bytes())));
  });
  EXPECT_EQ(rows.size(), table.rows_in(bucket));
  return {rows, std::string(table.sightings(bucket))};
}

// A server that dies anywhere and goes on from its snapshot and its log.
TEST_P(BoundedTableTest, ARestartGivesTheSameBits) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    test::TempDir dir;
    const BucketMap map = BucketMap::Even(1);
    auto state = std::make_unique<ServerState>(ServerState::Options{0, 0});
    auto log = PushLog::Open({dir.Path("log")}, {0, 0}, *state);
    ASSERT_TRUE(log.ok()) << log.status();
    const auto accept = [&](const EntryBytes& part) {
      ASSERT_TRUE(state->Check(part.entry, part.payload).ok());
      ASSERT_TRUE(
          (*log)->Append(part.entry.SerializeAsString(), part.payload).ok());
      ASSERT_TRUE(state->Apply(part.entry, part.payload).ok());
    };
    v1::PsEntry entry;
    *entry.mutable_definition() = definition_;
    accept({entry, ""});
    *entry.mutable_map() = ToProto(map);
    accept({entry, ""});
    accept(InitialPart(definition_, map, 0));
    for (int64_t number = 0; number < 40; ++number) {
      accept(PartOf(MakeGradient(definition_, number, random), definition_, map,
                    0));
      const uint64_t action = random() % 8;
      if (action == 0 && !(*log)->snapshotting()) {
        ASSERT_TRUE((*log)->BeginSnapshot(*state).ok());
      } else if (action == 1 && (*log)->snapshotting()) {
        pollfd wait = {(*log)->snapshot_fd(), POLLIN, 0};
        ASSERT_EQ(poll(&wait, 1, 60000), 1);
        ASSERT_TRUE((*log)->FinishSnapshot().ok());
      } else if (action == 2) {
        const uint64_t digest = state->Digest();
        log->reset();
        state = std::make_unique<ServerState>(ServerState::Options{0, 0});
        log = PushLog::Open({dir.Path("log")}, {0, 0}, *state);
        ASSERT_TRUE(log.ok()) << log.status();
        ASSERT_EQ(state->Digest(), digest);
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Buckets that move between servers have what they would have had on one.
TEST_P(BoundedTableTest, MovesChangeNothing) {
  constexpr int kServers = 4;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const BucketMap whole = BucketMap::Even(1);
    ServerState one({0, 0});
    Begin(one, definition_, whole, 0);
    BucketMap map = BucketMap::Even(2);
    std::vector<std::unique_ptr<ServerState>> servers;
    for (int i = 0; i < kServers; ++i) {
      servers.push_back(
          std::make_unique<ServerState>(ServerState::Options{i, 0}));
      if (i < 2) {
        Begin(*servers.back(), definition_, map, i);
      } else {
        v1::PsEntry entry;
        *entry.mutable_definition() = definition_;
        ASSERT_TRUE(Feed(*servers.back(), {entry, ""}).ok());
      }
    }
    const auto move = [&] {
      map = map.Rebalanced(1 + static_cast<int>(random() % kServers));
      v1::PsEntry entry;
      *entry.mutable_map() = ToProto(map);
      entry.mutable_map()->set_moves(true);
      for (const auto& server : servers) {
        ASSERT_TRUE(Feed(*server, {entry, ""}).ok());
      }
      for (const auto& server : servers) {
        for (const auto& [bucket, map_version] : server->leaving()) {
          v1::PsFetch fetch;
          fetch.set_bucket(bucket);
          fetch.set_map_version(map_version);
          v1::PsReply reply;
          Buffer payload;
          ASSERT_TRUE(server->Fetch(fetch, reply, payload).ok());
          const EntryBytes import = {reply.entry(),
                                     std::string(payload.view())};
          const auto to = static_cast<size_t>(map.owner(bucket));
          const absl::Status status = Feed(*servers[to], import);
          ASSERT_TRUE(status.ok()) << status;
          v1::PsEntry forget;
          forget.mutable_forget()->set_bucket(bucket);
          forget.mutable_forget()->set_map_version(map.version());
          ASSERT_TRUE(Feed(*server, {forget, ""}).ok());
        }
      }
    };
    for (int64_t number = 0; number < 30; ++number) {
      const Gradient gradient = MakeGradient(definition_, number, random);
      ASSERT_TRUE(Feed(one, PartOf(gradient, definition_, whole, 0)).ok());
      for (int i = 0; i < map.servers(); ++i) {
        ASSERT_TRUE(Feed(*servers[static_cast<size_t>(i)],
                         PartOf(gradient, definition_, map, i))
                        .ok());
      }
      if (random() % 4 == 0) move();
      if (HasFatalFailure()) return;
    }
    for (size_t t = 0; t < 2; ++t) {
      for (int bucket = 0; bucket < kBuckets; ++bucket) {
        const auto owner = static_cast<size_t>(map.owner(bucket));
        ASSERT_EQ(ContentsOf(*servers[owner]->tables()[t], bucket),
                  ContentsOf(*one.tables()[t], bucket))
            << "bucket " << bucket;
      }
    }
  }
}

// ---- one table ----

std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& text) {
  return *optim::Optimizer::Create(*optim::OptimizerSpec::Parse(text));
}
EmbeddingTable::Options TableOptions(size_t dim) {
  EmbeddingTable::Options options;
  options.name = "t";
  options.dim = dim;
  options.initializer = *Initializer::Parse("uniform");
  options.seed = 3;
  return options;
}
std::vector<float> PullOne(const EmbeddingTable& table, int64_t id) {
  std::vector<float> values(table.dim());
  table.Pull({&id, 1}, values.data());
  return values;
}

// Which rows are there, by the rules alone: one map per bucket.
class Rules {
 public:
  Rules(size_t most, bool frequency) : most_(most), frequency_(frequency) {}
  void Push(const std::vector<int64_t>& ids, int64_t step) {
    std::map<int, std::vector<int64_t>> added;
    for (const int64_t id : ids) {
      auto& rows = buckets_[Bucket(id)];
      const auto found = rows.find(id);
      if (found == rows.end()) {
        added[Bucket(id)].push_back(id);
      } else {
        found->second = {found->second.pushes + 1, step};
      }
    }
    for (const auto& [bucket, fresh] : added) {
      auto& rows = buckets_[bucket];
      if (rows.size() + fresh.size() > most_) {
        Evict(rows, std::max(rows.size() + fresh.size() - most_, most_ / 8),
              step);
      }
      for (const int64_t id : fresh) rows[id] = {1, step};
    }
  }
  std::set<int64_t> ids() const {
    std::set<int64_t> all;
    for (const auto& [bucket, rows] : buckets_) {
      for (const auto& [id, row] : rows) all.insert(id);
    }
    return all;
  }

 private:
  struct Row {
    int64_t pushes;
    int64_t step;
  };
  static uint64_t Hash(int64_t id) { return HashRow(HashName("t"), id); }
  static int Bucket(int64_t id) { return BucketOf(Hash(id)); }
  void Evict(std::map<int64_t, Row>& rows, size_t count, int64_t step) const {
    std::vector<std::tuple<int64_t, int64_t, uint64_t, int64_t>> order;
    for (const auto& [id, row] : rows) {
      if (row.step == step) continue;
      order.emplace_back(frequency_ ? row.pushes : 0, row.step, Hash(id), id);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < std::min(count, order.size()); ++i) {
      rows.erase(std::get<3>(order[i]));
    }
  }

  const size_t most_;
  const bool frequency_;
  std::map<int, std::map<int64_t, Row>> buckets_;
};

TEST(EvictionTest, FollowsTheRules) {
  const auto optimizer = MakeOptimizer("SGD(lr=0.1)");
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int64_t most = 1 + static_cast<int64_t>(random() % 20);
    EmbeddingTable::Options options = TableOptions(2);
    options.max_rows = most * kBuckets;
    options.eviction = seed % 2 == 0 ? Eviction::kAge : Eviction::kFrequency;
    const EmbeddingTable fresh(options, *optimizer);
    EmbeddingTable table(options, *optimizer);
    Rules rules(static_cast<size_t>(most), seed % 2 != 0);
    const auto range = static_cast<uint64_t>(most) * kBuckets * 2;
    std::set<int64_t> seen;
    for (int64_t step = 1; step <= 60; ++step) {
      std::set<int64_t> ids;
      while (ids.size() < 2000 && ids.size() < range / 2) {
        const uint64_t some = random() % 2 == 0 ? range : range / 10 + 1;
        ids.insert(static_cast<int64_t>(random() % some));
      }
      const std::vector<int64_t> list(ids.begin(), ids.end());
      const std::vector<float> gradients(list.size() * 2, 1.0f);
      ASSERT_TRUE(table.Push(list, gradients.data(), 0.1, step).ok());
      rules.Push(list, step);
      seen.insert(ids.begin(), ids.end());
      ASSERT_EQ(table.rows(), static_cast<int64_t>(rules.ids().size()));
    }
    const std::set<int64_t> there = rules.ids();
    EXPECT_LT(there.size(), seen.size());
    for (const int64_t id : seen) {
      const bool initial = PullOne(table, id) == PullOne(fresh, id);
      // A row that is gone begins again.
      ASSERT_EQ(initial, there.count(id) == 0) << "row " << id;
    }
  }
}

// Resident memory of this process.
size_t ResidentBytes() {
  const auto text = ReadFile("/proc/self/statm");
  EXPECT_TRUE(text.ok()) << text.status();
  const std::vector<std::string> fields = absl::StrSplit(*text, ' ');
  return std::stoull(fields.at(1)) * 4096;
}

// Of hundreds of tables with few rows, what is counted is what they take.
TEST(TableMemoryTest, ManySmallTablesAreCountedAsTheyAre) {
  const auto optimizer = MakeOptimizer("Adagrad(lr=0.1)");
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 1000; ++id) ids.push_back(id * 7919);
  const std::vector<float> gradients(ids.size() * 16, 1.0f);
  const size_t before = ResidentBytes();
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
  size_t counted = 0;
  for (int i = 0; i < 100; ++i) {
    EmbeddingTable::Options options = TableOptions(16);
    options.name = absl::StrCat("table", i);
    tables.push_back(std::make_unique<EmbeddingTable>(options, *optimizer));
    const size_t empty = tables.back()->bytes();
    const size_t most = tables.back()->MostGrowth(ids.size());
    const size_t growth = tables.back()->GrowthBy(ids, /*grow=*/true).bytes;
    ASSERT_TRUE(tables.back()->Push(ids, gradients.data(), 0.1, 1).ok());
    EXPECT_EQ(tables.back()->bytes(), empty + growth);
    EXPECT_LE(growth, most);
    counted += tables.back()->bytes();
  }
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer takes memory of its own";
#endif
  const size_t taken = ResidentBytes() - before;
  // 100,000 rows of 128 bytes. With a slab of 8 KiB for each bucket: 500 MB.
  EXPECT_LT(taken, size_t{80} << 20);
  EXPECT_LT(taken, counted * 5 / 4);
  EXPECT_GT(taken, counted / 2);
}

// A push that adds many rows to one bucket moves those that it has just looked
// up.
TEST(TableMemoryTest, APushMayMoveItsOwnRows) {
  for (const char* name : {"SGD(lr=0.1)", "Adam(lr=0.1)"}) {
    const auto optimizer = MakeOptimizer(name);
    EmbeddingTable together(TableOptions(8), *optimizer);
    EmbeddingTable single(TableOptions(8), *optimizer);
    std::vector<int64_t> ids;
    for (int64_t id = 0; ids.size() < 300; ++id) {
      if (BucketOf(HashRow(together.hash(), id)) == 5) ids.push_back(id);
    }
    std::mt19937_64 random(1);
    std::uniform_real_distribution<float> value(-1, 1);
    for (int64_t step = 1; step < 60; ++step) {
      std::vector<int64_t> some;
      for (const int64_t id : ids) {
        if (static_cast<int64_t>(random() % 80) < step) some.push_back(id);
      }
      std::vector<float> gradients(some.size() * 8);
      for (float& gradient : gradients) gradient = value(random);
      ASSERT_TRUE(together.Push(some, gradients.data(), 0.1, step).ok());
      for (size_t i = 0; i < some.size(); ++i) {
        ASSERT_TRUE(
            single.Push({&some[i], 1}, &gradients[i * 8], 0.1, step).ok());
      }
      ASSERT_EQ(together.rows(), single.rows());
      ASSERT_EQ(together.bytes(), single.bytes());
      for (const int64_t id : ids) {
        ASSERT_EQ(PullOne(together, id), PullOne(single, id)) << id;
      }
    }
  }
}

TEST(EvictionTest, APushKeepsWhatItTouches) {
  const auto optimizer = MakeOptimizer("SGD(lr=0.1)");
  EmbeddingTable::Options options = TableOptions(1);
  options.max_rows = kBuckets;
  EmbeddingTable table(options, *optimizer);
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 5 * kBuckets; ++id) ids.push_back(id);
  const std::vector<float> gradients(ids.size(), 1.0f);
  EXPECT_EQ(table.GrowthBy(ids, /*grow=*/true).rows, 5 * kBuckets);
  ASSERT_TRUE(table.Push(ids, gradients.data(), 0.1, 1).ok());
  EXPECT_EQ(table.rows(), 5 * kBuckets);
  // The next one makes room again, where it needs some.
  for (int64_t& id : ids) id += 5 * kBuckets;
  ids.resize(200);
  ASSERT_TRUE(table.Push(ids, gradients.data(), 0.1, 2).ok());
  EXPECT_LT(table.rows(), 5 * kBuckets);
}

// Memory is nearly used up: new rows take the places of old ones long before
// there are as many as allowed.
TEST(EvictionTest, ATableThatMayNotGrowKeepsItsSize) {
  const auto optimizer = MakeOptimizer("SGD(lr=0.1)");
  EmbeddingTable::Options options = TableOptions(1);
  options.max_rows = 1000 * kBuckets;
  EmbeddingTable table(options, *optimizer);
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 50 * kBuckets; ++id) ids.push_back(id);
  const std::vector<float> gradients(ids.size(), 1.0f);
  ASSERT_TRUE(table.Push(ids, gradients.data(), 0.1, 1).ok());
  ids.resize(1000);
  for (int64_t step = 2; step < 100; ++step) {
    for (int64_t& id : ids) id += 50 * kBuckets;
    EXPECT_EQ(table.GrowthBy(ids, /*grow=*/true).rows, 1000);
    EXPECT_EQ(table.GrowthBy(ids, /*grow=*/false).rows, 0);
    ASSERT_TRUE(
        table.Push(ids, gradients.data(), 0.1, step, /*grow=*/false).ok());
    ASSERT_LE(table.rows(), 50 * kBuckets);
  }
  EXPECT_EQ(table.GrowthBySet(ids, /*cleared=*/false).rows, 0);
}

TEST(MinCountTest, ARowComesWithTheNthPush) {
  const auto optimizer = MakeOptimizer("SGD(lr=1)");
  EmbeddingTable::Options options = TableOptions(1);
  options.initializer = *Initializer::Parse("zeros");
  options.min_count = 3;
  EmbeddingTable table(options, *optimizer);
  const std::vector<int64_t> ids = {-5, 7, 1000000007};
  const std::vector<float> gradients = {1, 1, 1};
  for (int64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(table.Push(ids, gradients.data(), 1, step).ok());
    EXPECT_EQ(table.rows(), step < 3 ? 0 : 3);
    for (const int64_t id : ids) {
      EXPECT_EQ(PullOne(table, id)[0], step < 3 ? 0 : -(step - 2));
    }
  }
  EXPECT_GT(table.bytes(), table.empty_bytes() + 3 * table.row_bytes());
  table.Clear();
  EXPECT_EQ(table.bytes(), table.empty_bytes());
}

// Updates far below the distance of two stored values add up all the same.
TEST(HalfRowsTest, SmallUpdatesAreNotLost) {
  const auto optimizer = MakeOptimizer("SGD(lr=1)");
  for (const RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
    EmbeddingTable::Options options = TableOptions(64);
    options.initializer = *Initializer::Parse("ones");
    options.type = type;
    EmbeddingTable table(options, *optimizer);
    const int64_t id = 4;
    const std::vector<float> gradients(64, 1e-4f);
    for (int64_t step = 1; step <= 5000; ++step) {
      ASSERT_TRUE(table.Push({&id, 1}, gradients.data(), 1, step).ok());
    }
    double mean = 0;
    for (const float value : PullOne(table, id)) mean += value / 64;
    EXPECT_NEAR(mean, 0.5, 0.02);
  }
}

TEST(HalfRowsTest, BytesPerRow) {
  const auto optimizer = MakeOptimizer("SGD");
  EmbeddingTable::Options options = TableOptions(32);
  EXPECT_EQ(EmbeddingTable(options, *optimizer).row_bytes(), 128u);
  options.type = RowType::kBfloat16;
  EXPECT_EQ(EmbeddingTable(options, *optimizer).row_bytes(), 64u);
  options.max_rows = 1 << 20;
  EXPECT_EQ(EmbeddingTable(options, *optimizer).row_bytes(), 8 + 64u);
}

// A row that was stored has its initial value until then, bit by bit.
TEST(HalfRowsTest, InitialValuesAreThoseThatAreStored) {
  const auto optimizer = MakeOptimizer("SGD(lr=0)");
  for (const RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
    EmbeddingTable::Options options = TableOptions(5);
    options.type = type;
    EmbeddingTable table(options, *optimizer);
    const std::vector<float> gradients(5, 1.0f);
    for (int64_t id = 0; id < 100; ++id) {
      const std::vector<float> before = PullOne(table, id);
      ASSERT_TRUE(table.Push({&id, 1}, gradients.data(), 0, 1).ok());
      ASSERT_EQ(PullOne(table, id), before);
      // What a checkpoint holds comes back as it was.
      EmbeddingTable other(options, *optimizer);
      ASSERT_TRUE(other.Set(id, before.data(), {}).ok());
      ASSERT_EQ(PullOne(other, id), before);
    }
  }
}

}  // namespace
}  // namespace elasticdl::ps
