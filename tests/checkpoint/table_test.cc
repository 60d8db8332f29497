// Embedding tables in checkpoints: in parts, over several files, with slots.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/tensor.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layout.h"

namespace elasticdl::checkpoint {
namespace {

using test::ExpectSame;
using test::MemoryDir;
using test::MustSave;
using test::TestSnapshot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows [from, to), with ids of all sizes.
OwnedTableRows MakeRows(const std::string& name, int64_t dim, int64_t from,
                        int64_t to, const std::vector<std::string>& slots) {
  OwnedTableRows rows;
  rows.name = name;
  rows.dim = dim;
  rows.initializer = "normal";
  for (const std::string& slot : slots) rows.slots.push_back({slot, {}});
  for (int64_t i = from; i < to; ++i) {
    const auto mixed =
        static_cast<int64_t>(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u);
    rows.ids.push_back(i % 3 == 0 ? i : mixed >> (i % 64));
    for (int64_t d = 0; d < dim; ++d) {
      rows.values.push_back(static_cast<float>(i * 10 + d));
      for (size_t s = 0; s < slots.size(); ++s) {
        rows.slots[s].values.push_back(static_cast<float>(i * 10 + d) +
                                       0.25f * static_cast<float>(s + 1));
      }
    }
  }
  return rows;
}

// Ids and their rows one after the other: values, then each slot.
struct Table {
  std::vector<int64_t> ids;
  std::map<std::string, std::vector<float>> arrays;

  friend bool operator==(const Table& a, const Table& b) {
    return a.ids == b.ids && a.arrays == b.arrays;
  }
};

void Append(const NamedTensor& tensor, std::vector<float>& to) {
  const size_t count = tensor.bytes.size() / sizeof(float);
  to.resize(to.size() + count);
  if (count > 0) {
    std::memcpy(to.data() + to.size() - count, tensor.bytes.data(),
                tensor.bytes.size());
  }
}

std::map<std::string, Table> Tables(const Loaded& loaded) {
  std::map<std::string, Table> tables;
  for (const EmbeddingRows& rows : loaded.embedding_tables) {
    Table& table = tables[rows.name];
    table.ids.insert(table.ids.end(), rows.ids.begin(), rows.ids.end());
    Append(rows.rows, table.arrays[""]);
    for (const NamedTensor& slot : rows.slots) {
      Append(slot, table.arrays[slot.name]);
    }
  }
  return tables;
}

std::map<std::string, Table> Tables(const Snapshot& snapshot) {
  std::map<std::string, Table> tables;
  const auto append = [](absl::Span<const float> from, std::vector<float>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const TableRows& rows : snapshot.tables) {
    Table& table = tables[rows.name];
    table.ids.insert(table.ids.end(), rows.ids.begin(), rows.ids.end());
    append(rows.values, table.arrays[""]);
    for (const TableRows::Slot& slot : rows.slots) {
      append(slot.values, table.arrays[SlotName(rows.name, slot.name)]);
    }
  }
  return tables;
}

OwnedSnapshot MakeSnapshot(int64_t version) {
  OwnedSnapshot owned = OwnedSnapshot::Copy(TestSnapshot(version).get());
  owned.AddTable(MakeRows("items", 3, 0, 40, {"m", "v"}));
  owned.AddTable(MakeRows("items", 3, 40, 41, {"m", "v"}));
  owned.AddTable(MakeRows("items", 3, 41, 100, {"m", "v"}));
  owned.AddTable(MakeRows("none/yet", 5, 0, 0, {"m", "v"}));
  owned.AddTable(MakeRows("users", 1, 0, 30, {"m", "v"}));
  return owned;
}

std::vector<int64_t> RanksOf(const Loaded& loaded, const std::string& name) {
  std::vector<int64_t> ranks;
  for (const EmbeddingRows& rows : loaded.embedding_tables) {
    if (rows.name != name || rows.ranks == nullptr) continue;
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      int64_t rank = 0;
      std::memcpy(&rank, rows.ranks + i * sizeof(rank), sizeof(rank));
      ranks.push_back(rank);
    }
  }
  return ranks;
}

// Of tables whose rows may be evicted.
TEST(CheckpointTableTest, RanksAreInFilesOfTheirOwn) {
  OwnedSnapshot owned = OwnedSnapshot::Copy(TestSnapshot(7).get());
  std::vector<int64_t> expected;
  for (int64_t from = 0; from < 100; from += 50) {
    OwnedTableRows rows = MakeRows("items", 3, from, from + 50, {"m"});
    for (int64_t i = from; i < from + 50; ++i) {
      rows.ranks.push_back(
          static_cast<int64_t>(static_cast<uint64_t>(i * 977) << (i % 50)));
    }
    expected.insert(expected.end(), rows.ranks.begin(), rows.ranks.end());
    owned.AddTable(std::move(rows));
  }
  owned.AddTable(MakeRows("users", 1, 0, 30, {"m"}));
  for (const int64_t max_bytes : {1, 200, 1 << 30}) {
    MemoryDir dir;
    SaveOptions options;
    options.max_file_bytes = max_bytes;
    const auto path =
        Save(dir.path(), OwnedSnapshot::Copy(owned.snapshot).snapshot, options);
    ASSERT_TRUE(path.ok()) << path.status();
    const auto loaded = Load(*path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(Tables(*loaded) == Tables(owned.snapshot));
    EXPECT_EQ(RanksOf(*loaded, "items"), expected);
    EXPECT_THAT(RanksOf(*loaded, "users"), ElementsAre());
    const auto names = ListDirectory(*path);
    ASSERT_TRUE(names.ok());
    EXPECT_EQ(std::count_if(names->begin(), names->end(),
                            [](const std::string& name) {
                              return name.rfind("ranks-0-of-", 0) == 0;
                            }),
              1);
  }
}

TEST(CheckpointTableTest, RanksThatDoNotFitAreRefused) {
  OwnedSnapshot owned;
  owned.snapshot.version = 7;
  OwnedTableRows rows = MakeRows("items", 3, 0, 50, {});
  rows.ranks.assign(49, 1);
  owned.AddTable(std::move(rows));
  MemoryDir dir;
  EXPECT_THAT(
      std::string(Save(dir.path(), owned.snapshot, {}).status().message()),
      HasSubstr("has 50 ids and 49 ranks"));
  OwnedSnapshot mixed;
  mixed.snapshot.version = 7;
  rows = MakeRows("items", 3, 0, 50, {});
  rows.ranks.assign(50, 1);
  mixed.AddTable(std::move(rows));
  mixed.AddTable(MakeRows("items", 3, 50, 60, {}));
  EXPECT_THAT(
      std::string(Save(dir.path(), mixed.snapshot, {}).status().message()),
      HasSubstr("differ in dim, slots or ranks"));
}

TEST(CheckpointTableTest, RoundTripsWhateverTheFilesHold) {
  const OwnedSnapshot owned = MakeSnapshot(7);
  for (const int64_t max_bytes : {1, 50, 200, 1000, 5000, 1 << 30}) {
    MemoryDir dir;
    SaveOptions options;
    options.max_file_bytes = max_bytes;
    const auto path = Save(dir.path(), owned.snapshot, options);
    ASSERT_TRUE(path.ok()) << path.status();
    const auto loaded = Load(*path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ExpectSame(*loaded, owned.snapshot);
    EXPECT_TRUE(Tables(*loaded) == Tables(owned.snapshot)) << max_bytes;
    for (const EmbeddingRows& rows : loaded->embedding_tables) {
      EXPECT_EQ(rows.slots.size(), 2u);
      EXPECT_EQ(rows.rows.shape.size(), 2u);
    }
    EXPECT_TRUE(Verify(*path).ok());
    const size_t parts = loaded->embedding_tables.size();
    // One row in each, or one part of each table.
    if (max_bytes == 1) {
      EXPECT_EQ(parts, 131u);
    } else if (max_bytes == 1 << 30) {
      EXPECT_EQ(parts, 3u);
    }
  }
}

TEST(CheckpointTableTest, ProtocolBuffersReadEveryFile) {
  MemoryDir dir;
  const OwnedSnapshot owned = MakeSnapshot(7);
  SaveOptions options;
  options.max_file_bytes = 500;
  const auto path = Save(dir.path(), owned.snapshot, options);
  ASSERT_TRUE(path.ok()) << path.status();
  std::map<std::string, int64_t> rows;
  const auto names = ListDirectory(*path);
  ASSERT_TRUE(names.ok());
  int files = 0;
  for (const std::string& name : *names) {
    if (!internal::ParseShardName(name).has_value()) continue;
    ++files;
    v1::Model model;
    ASSERT_TRUE(model.ParseFromString(*ReadFile(JoinPath(*path, name))));
    EXPECT_EQ(model.version(), 7);
    for (const auto& [table, slices] : model.embedding_tables()) {
      rows[table] += slices.ids_size();
      EXPECT_EQ(slices.concat_tensors().tensor_shape().dim(0).size(),
                slices.ids_size());
    }
    if (name.find("variables-0-of") != 0) continue;
    ASSERT_EQ(model.embedding_table_infos_size(), 3);
    EXPECT_EQ(model.embedding_table_infos(0).name(), "items");
    EXPECT_EQ(model.embedding_table_infos(0).dim(), 3);
    EXPECT_EQ(model.embedding_table_infos(0).initializer(), "normal");
    EXPECT_EQ(model.embedding_table_infos(0).dtype(), v1::DT_FLOAT);
  }
  EXPECT_GT(files, 10);
  // A map keeps one entry of each name: none was in a file twice.
  EXPECT_EQ(rows["items"], 100);
  EXPECT_EQ(rows["items/m"], 100);
  EXPECT_EQ(rows["items/v"], 100);
  EXPECT_EQ(rows["users"], 30);
  EXPECT_EQ(rows["none/yet/v"], 0);
  EXPECT_EQ(rows.size(), 9u);
}

TEST(CheckpointTableTest, CopiesOutliveTheirSource) {
  OwnedSnapshot copy;
  {
    const OwnedSnapshot source = MakeSnapshot(3);
    copy = OwnedSnapshot::Copy(source.snapshot);
  }
  const OwnedSnapshot moved = std::move(copy);
  EXPECT_TRUE(Tables(moved.snapshot) == Tables(MakeSnapshot(3).snapshot));
  ASSERT_EQ(moved.snapshot.tables.size(), 5u);
  EXPECT_EQ(moved.snapshot.tables[0].initializer, "normal");
}

TEST(CheckpointTableTest, KeptArraysStayWhereTheyAre) {
  OwnedSnapshot owned;
  for (int i = 0; i < 20; ++i) {
    NamedTensor tensor;
    tensor.name = "w" + std::to_string(i);
    tensor.shape = {3};
    tensor.bytes =
        owned.Keep({static_cast<float>(i), 1.0f, static_cast<float>(-i)});
    owned.snapshot.variables.push_back(std::move(tensor));
  }
  const OwnedSnapshot moved = std::move(owned);
  for (int i = 0; i < 20; ++i) {
    float values[3];
    std::memcpy(values,
                moved.snapshot.variables[static_cast<size_t>(i)].bytes.data(),
                sizeof(values));
    EXPECT_THAT(values, ElementsAre(static_cast<float>(i), 1.0f,
                                    static_cast<float>(-i)));
  }
}

TEST(CheckpointTableTest, TheSignatureKnowsTablesButNotRows) {
  const TestSnapshot plain(1);
  const std::string without =
      internal::ModelSignature(plain.get().variables, {});
  EXPECT_EQ(without, internal::ModelSignature(plain.get().variables));
  // As older releases wrote it.
  EXPECT_EQ(without, "353c93ee90c8b4be");
  const OwnedSnapshot owned = MakeSnapshot(1);
  const std::string with =
      internal::ModelSignature(owned.snapshot.variables, owned.snapshot.tables);
  EXPECT_NE(with, without);
  std::vector<TableRows> fewer = owned.snapshot.tables;
  fewer.erase(fewer.begin(), fewer.begin() + 2);
  EXPECT_EQ(internal::ModelSignature(owned.snapshot.variables, fewer), with);
  fewer[0].dim = 4;
  EXPECT_NE(internal::ModelSignature(owned.snapshot.variables, fewer), with);
}

TEST(CheckpointTableTest, RefusesTablesThatAreWrong) {
  MemoryDir dir;
  const auto refused = [&](const OwnedSnapshot& owned) {
    const absl::Status status =
        Save(dir.Path("never"), owned.snapshot).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_FALSE(FileExists(dir.Path("never")));
    return std::string(status.message());
  };
  OwnedSnapshot owned = MakeSnapshot(1);
  owned.AddTable(MakeRows("items", 3, 100, 110, {"m", "v"}));
  EXPECT_THAT(refused(owned), HasSubstr("do not follow each other"));
  owned = MakeSnapshot(1);
  owned.AddTable(MakeRows("users", 1, 100, 110, {"m"}));
  EXPECT_THAT(refused(owned), HasSubstr("differ in dim, slots or ranks"));
  owned = MakeSnapshot(1);
  owned.AddTable(MakeRows("users", 2, 100, 110, {"m", "v"}));
  EXPECT_THAT(refused(owned), HasSubstr("differ in dim, slots or ranks"));
  owned = MakeSnapshot(1);
  owned.snapshot.tables[0].values.remove_suffix(1);
  EXPECT_THAT(refused(owned),
              HasSubstr("table 'items' has 40 ids and 119 values of dim 3"));
  owned = MakeSnapshot(1);
  owned.snapshot.tables[0].slots[1].values.remove_suffix(3);
  EXPECT_THAT(refused(owned), HasSubstr("values of slot v"));
  owned = MakeSnapshot(1);
  owned.snapshot.tables[0].dim = 0;
  EXPECT_THAT(refused(owned), HasSubstr("has dim 0"));
  owned = MakeSnapshot(1);
  owned.AddTable(MakeRows("t", 1, 0, 1, {"a/b"}));
  EXPECT_THAT(refused(owned), HasSubstr("slot 'a/b'"));
}

TEST(CheckpointTableTest, SlotsThatDoNotFitAreDamage) {
  // A folder without a manifest has no optimizer files, so the manifest is made
  // by saving and the files are exchanged between two checkpoints.
  MemoryDir dir;
  OwnedSnapshot one;
  one.AddTable(MakeRows("t", 2, 0, 10, {"m"}));
  OwnedSnapshot other;
  other.AddTable(MakeRows("t", 2, 1, 11, {"m"}));
  const std::string a = MustSave(dir.Path("a"), one.snapshot);
  const std::string b = MustSave(dir.Path("b"), other.snapshot);
  const auto read_manifest = [](const std::string& path) {
    return *internal::ParseManifest(
        *ReadFile(JoinPath(path, internal::kManifestName)), path);
  };
  internal::Manifest manifest = read_manifest(a);
  const std::string name = "optimizer-0-of-1.ckpt";
  for (internal::ManifestFile& file : manifest.files) {
    if (file.name != name) continue;
    for (const internal::ManifestFile& from : read_manifest(b).files) {
      if (from.name == name) file = from;
    }
  }
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(a, name), *ReadFile(JoinPath(b, name))).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(a, internal::kManifestName),
                              internal::FormatManifest(manifest))
                  .ok());
  const absl::Status loaded = Load(a).status();
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_THAT(std::string(loaded.message()),
              HasSubstr("the ids of slot t/m float32[10,2] are not those of "
                        "its table t float32[10,2]"));
}

}  // namespace
}  // namespace elasticdl::checkpoint
