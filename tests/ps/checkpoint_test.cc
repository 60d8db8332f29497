// Checkpoints of parameter servers: read from some servers, saved, loaded, and
// restored to another number of servers.
#include "elasticdl/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"
#include "model.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "the token of this job";

// Some servers with logs.
class Cluster {
 public:
  Cluster(int servers, const v1::PsDefinition& definition,
          int64_t snapshot_bytes = 1 << 18)
      : definition_(definition),
        map_(BucketMap::Even(servers)),
        snapshot_bytes_(snapshot_bytes) {
    servers_.resize(static_cast<size_t>(servers));
    for (int i = 0; i < servers; ++i) Start(i);
  }
  void Start(int server) {
    ServerOptions options;
    options.server = server;
    options.address = {"127.0.0.1", 0};
    options.secret = kSecret;
    options.log_dir = dir_.Path("ps-" + std::to_string(server));
    options.snapshot_bytes = snapshot_bytes_;
    auto started = Server::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    MutexLock lock(mu_);
    servers_[static_cast<size_t>(server)] = *std::move(started);
  }
  void End(int server) {
    std::unique_ptr<Server> ended;
    MutexLock lock(mu_);
    ended.swap(servers_[static_cast<size_t>(server)]);
  }
  void Restart() {
    // All of them, because a child that writes a snapshot for one has the
    // others' locks for a moment.
    for (int i = 0; i < map_.servers(); ++i) End(i);
    for (int i = 0; i < map_.servers(); ++i) Start(i);
  }
  std::unique_ptr<Client> MakeClient(
      absl::Duration patience = absl::Seconds(30)) {
    Client::Options options;
    options.secret = kSecret;
    options.patience = patience;
    options.find = [this](int server,
                          absl::Duration) -> absl::StatusOr<net::Address> {
      MutexLock lock(mu_);
      const auto& found = servers_[static_cast<size_t>(server)];
      if (found == nullptr) return absl::UnavailableError("not there");
      return net::Address{"127.0.0.1", found->port()};
    };
    auto client = std::make_unique<Client>(options, map_);
    const absl::Status defined = client->Define(definition_);
    EXPECT_TRUE(defined.ok()) << defined;
    return client;
  }
  std::vector<uint64_t> Digests() {
    const auto status = MakeClient()->Status(/*digest=*/true);
    EXPECT_TRUE(status.ok()) << status.status();
    std::vector<uint64_t> digests;
    for (const auto& reply : *status) {
      digests.push_back(reply.status().digest());
    }
    return digests;
  }

 private:
  const v1::PsDefinition definition_;
  const BucketMap map_;
  const int64_t snapshot_bytes_;
  test::TempDir dir_;
  Mutex mu_;
  std::vector<std::unique_ptr<Server>> servers_ ABSL_GUARDED_BY(mu_);
};

// Everything that servers hold, wherever it lies.
struct Contents {
  int64_t version = 0;
  std::vector<std::vector<float>> dense;
  // By table and id: the values, then each slot's.
  std::vector<std::map<int64_t, std::vector<float>>> tables;
  // By table and id; none of tables that evict no rows.
  std::vector<std::map<int64_t, int64_t>> ranks;

  friend bool operator==(const Contents& a, const Contents& b) {
    return a.version == b.version && a.dense == b.dense &&
           a.tables == b.tables && a.ranks == b.ranks;
  }
};

Contents ReadAll(Client& client, const v1::PsDefinition& definition) {
  Contents contents;
  const auto version = client.ReadDense(contents.dense);
  EXPECT_TRUE(version.ok()) << version.status();
  contents.version = version.value_or(-1);
  for (int t = 0; t < definition.tables_size(); ++t) {
    const auto dim = static_cast<size_t>(definition.tables(t).dim());
    auto& rows = contents.tables.emplace_back();
    auto& all_ranks = contents.ranks.emplace_back();
    const auto read = client.ReadTable(
        static_cast<uint32_t>(t),
        [&](absl::Span<const int64_t> ids, const float* values,
            absl::Span<const float* const> slots,
            absl::Span<const int64_t> ranks) {
          for (size_t i = 0; i < ids.size(); ++i) {
            std::vector<float>& row = rows[ids[i]];
            EXPECT_TRUE(row.empty()) << "twice: " << ids[i];
            row.assign(values + i * dim, values + (i + 1) * dim);
            for (const float* slot : slots) {
              row.insert(row.end(), slot + i * dim, slot + (i + 1) * dim);
            }
            if (!ranks.empty()) all_ranks[ids[i]] = ranks[i];
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read.value_or(-1), contents.version);
  }
  return contents;
}

std::vector<std::string> SlotNames(const std::string& optimizer) {
  return (*optim::Optimizer::Create(*optim::OptimizerSpec::Parse(optimizer)))
      ->slot_names();
}

// As a worker does it.
std::string SaveServers(Client& client, const v1::PsDefinition& definition,
                        const std::string& dir) {
  const std::vector<std::string> slot_names = SlotNames(definition.optimizer());
  checkpoint::OwnedSnapshot owned;
  std::vector<std::vector<float>> dense;
  const auto version = client.ReadDense(dense);
  EXPECT_TRUE(version.ok()) << version.status();
  owned.snapshot.version = version.value_or(0);
  owned.snapshot.optimizer = definition.optimizer();
  owned.snapshot.optimizer_step = version.value_or(0);
  for (size_t a = 0; a < dense.size(); ++a) {
    const absl::Span<const char> bytes = owned.Keep(std::move(dense[a]));
    size_t at = 0;
    for (const auto& parameter : definition.dense()) {
      checkpoint::NamedTensor tensor;
      tensor.shape = {parameter.shape().begin(), parameter.shape().end()};
      size_t size = sizeof(float);
      for (const int64_t n : tensor.shape) size *= static_cast<size_t>(n);
      tensor.bytes = bytes.subspan(at, size);
      at += size;
      tensor.name =
          a == 0 ? parameter.name()
                 : checkpoint::SlotName(parameter.name(), slot_names[a - 1]);
      (a == 0 ? owned.snapshot.variables : owned.snapshot.slots)
          .push_back(std::move(tensor));
    }
  }
  for (int t = 0; t < definition.tables_size(); ++t) {
    const auto dim = static_cast<size_t>(definition.tables(t).dim());
    const auto read = client.ReadTable(
        static_cast<uint32_t>(t),
        [&](absl::Span<const int64_t> ids, const float* values,
            absl::Span<const float* const> slots,
            absl::Span<const int64_t> ranks) {
          checkpoint::OwnedTableRows part;
          part.ranks.assign(ranks.begin(), ranks.end());
          part.name = definition.tables(t).name();
          part.dim = definition.tables(t).dim();
          part.ids.assign(ids.begin(), ids.end());
          part.values.assign(values, values + ids.size() * dim);
          for (size_t s = 0; s < slots.size(); ++s) {
            part.slots.push_back(
                {slot_names[s], {slots[s], slots[s] + ids.size() * dim}});
          }
          owned.AddTable(std::move(part));
          return absl::OkStatus();
        });
    EXPECT_TRUE(read.ok()) << read.status();
  }
  checkpoint::SaveOptions options;
  options.max_file_bytes = 3000;
  const auto path = checkpoint::Save(dir, owned.snapshot, options);
  EXPECT_TRUE(path.ok()) << path.status();
  return path.value_or("");
}

// `parts`: of the tables, so many only.
absl::Status RestoreRows(const checkpoint::Loaded& loaded,
                         const v1::PsDefinition& definition, Client& client,
                         int64_t version, size_t parts = 1000000) {
  for (const checkpoint::EmbeddingRows& part : loaded.embedding_tables) {
    if (parts-- == 0) break;
    int t = 0;
    while (definition.tables(t).name() != part.name) ++t;
    std::vector<const void*> slots;
    for (const std::string& slot : SlotNames(definition.optimizer())) {
      for (const checkpoint::NamedTensor& tensor : part.slots) {
        if (tensor.name == checkpoint::SlotName(part.name, slot)) {
          slots.push_back(tensor.bytes.data());
        }
      }
    }
    const absl::Status restored =
        client.RestoreRows(version, static_cast<uint32_t>(t), part.ids,
                           part.rows.bytes.data(), slots, part.ranks);
    if (!restored.ok()) return restored;
  }
  return absl::OkStatus();
}

absl::Status RestoreDense(const checkpoint::Loaded& loaded,
                          const v1::PsDefinition& definition, Client& client) {
  const std::vector<std::string> names = SlotNames(definition.optimizer());
  std::vector<std::vector<float>> arrays(1 + names.size());
  for (size_t a = 0; a < arrays.size(); ++a) {
    for (const auto& parameter : definition.dense()) {
      const checkpoint::NamedTensor* tensor =
          a == 0 ? loaded.FindVariable(parameter.name())
                 : loaded.FindSlot(parameter.name(), names[a - 1]);
      if (tensor == nullptr) return absl::NotFoundError(parameter.name());
      const size_t count = tensor->bytes.size() / sizeof(float);
      arrays[a].resize(arrays[a].size() + count);
      std::memcpy(arrays[a].data() + arrays[a].size() - count,
                  tensor->bytes.data(), tensor->bytes.size());
    }
  }
  std::vector<const float*> slots;
  for (size_t a = 1; a < arrays.size(); ++a) slots.push_back(arrays[a].data());
  return client.SetInitialValues(arrays[0].data(), slots, loaded.version);
}

absl::Status Restore(const checkpoint::Loaded& loaded,
                     const v1::PsDefinition& definition, Client& client) {
  const absl::Status rows =
      RestoreRows(loaded, definition, client, loaded.version);
  return rows.ok() ? RestoreDense(loaded, definition, client) : rows;
}

struct Case {
  const char* optimizer;
  int from;
  int to;
};

// A restored job evicts the same rows as one that has gone on.
TEST(PsCheckpointRanksTest, RowsAreEvictedInTheSameOrder) {
  for (const char* eviction : {"age", "frequency"}) {
    SCOPED_TRACE(eviction);
    v1::PsDefinition definition = TestDefinition("Adagrad(lr=0.1)");
    for (auto& table : *definition.mutable_tables()) {
      table.set_max_rows(2 * kBuckets);
      table.set_eviction(eviction);
    }
    const auto push = [&](Client& client, int64_t number, uint64_t seed) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(number));
      Gradient gradient = RandomGradient(definition, number, random);
      for (size_t t = 0; t < gradient.ids.size(); ++t) {
        std::set<int64_t> ids;
        while (ids.size() < 400) {
          ids.insert(static_cast<int64_t>(random() % 6000));
        }
        gradient.ids[t].assign(ids.begin(), ids.end());
        gradient.rows[t].assign(
            ids.size() * static_cast<size_t>(
                             definition.tables(static_cast<int>(t)).dim()),
            0.5f);
      }
      ASSERT_TRUE(Push(client, gradient).ok());
    };
    Cluster before(2, definition);
    auto old_client = before.MakeClient();
    ASSERT_TRUE(
        old_client->SetInitialValues(InitialDense(definition).data()).ok());
    for (int64_t i = 0; i < 20; ++i) push(*old_client, i, 1);
    test::TempDir dir;
    const std::string path =
        SaveServers(*old_client, definition, dir.Path("ckpt"));
    const auto loaded = checkpoint::Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    Cluster after(3, definition);
    auto new_client = after.MakeClient();
    ASSERT_TRUE(Restore(*loaded, definition, *new_client).ok());
    const Contents restored = ReadAll(*new_client, definition);
    EXPECT_EQ(restored.ranks[0].size(), restored.tables[0].size());
    EXPECT_TRUE(restored == ReadAll(*old_client, definition));
    for (int64_t i = 20; i < 40; ++i) {
      push(*old_client, i, 1);
      push(*new_client, i, 1);
    }
    EXPECT_TRUE(ReadAll(*new_client, definition) ==
                ReadAll(*old_client, definition));
  }
}

class PsCheckpointTest : public testing::TestWithParam<Case> {};

TEST_P(PsCheckpointTest, GoesOnWithAnotherNumberOfServers) {
  const Case& with = GetParam();
  const v1::PsDefinition definition = TestDefinition(with.optimizer);
  Cluster before(with.from, definition);
  auto old_client = before.MakeClient();
  ASSERT_TRUE(
      old_client->SetInitialValues(InitialDense(definition).data()).ok());
  std::mt19937_64 random(3);
  int64_t number = 0;
  for (; number < 7; ++number) {
    ASSERT_TRUE(
        Push(*old_client, RandomGradient(definition, number, random)).ok());
  }
  test::TempDir dir;
  const std::string path =
      SaveServers(*old_client, definition, dir.Path("ckpt"));
  const auto loaded = checkpoint::Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  // In several files.
  EXPECT_GT(loaded->embedding_tables.size(), 5u);

  Cluster after(with.to, definition);
  auto new_client = after.MakeClient();
  const absl::Status restored = Restore(*loaded, definition, *new_client);
  ASSERT_TRUE(restored.ok()) << restored;
  const Contents contents = ReadAll(*old_client, definition);
  EXPECT_EQ(contents.version, 7);
  EXPECT_EQ(contents.dense.size(), 1 + SlotNames(with.optimizer).size());
  EXPECT_GT(contents.tables[0].size(), 50u);
  EXPECT_TRUE(ReadAll(*new_client, definition) == contents);

  for (; number < 12; ++number) {
    const Gradient gradient = RandomGradient(definition, number, random);
    ASSERT_TRUE(Push(*old_client, gradient).ok());
    ASSERT_TRUE(Push(*new_client, gradient).ok());
  }
  // Also what the log says.
  after.Restart();
  EXPECT_TRUE(ReadAll(*new_client, definition) ==
              ReadAll(*old_client, definition));
}

INSTANTIATE_TEST_SUITE_P(
    All, PsCheckpointTest,
    testing::Values(Case{"SGD(lr=0.1)", 1, 3}, Case{"SGD(lr=0.1)", 3, 2},
                    Case{"SGD(lr=0.1,momentum=0.9)", 1, 3},
                    Case{"SGD(lr=0.1,momentum=0.9)", 3, 2}, Case{"Adam", 1, 3},
                    Case{"Adam", 3, 2}, Case{"Adagrad", 1, 3},
                    Case{"Adagrad", 3, 2}, Case{"Adam(amsgrad=1)", 3, 3}));

class PsRestoreTest : public testing::Test {
 protected:
  PsRestoreTest() {
    Cluster source(2, definition_);
    auto client = source.MakeClient();
    EXPECT_TRUE(
        client->SetInitialValues(InitialDense(definition_).data()).ok());
    std::mt19937_64 random(3);
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(Push(*client, RandomGradient(definition_, i, random)).ok());
    }
    contents_ = ReadAll(*client, definition_);
    auto loaded =
        checkpoint::Load(SaveServers(*client, definition_, dir_.Path("ckpt")));
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
    EXPECT_GT(loaded_.embedding_tables.size(), 4u);
  }
  // Of three servers that were restored without trouble.
  std::vector<uint64_t> PlainDigests() {
    Cluster plain(3, definition_);
    EXPECT_TRUE(Restore(loaded_, definition_, *plain.MakeClient()).ok());
    return plain.Digests();
  }

  const v1::PsDefinition definition_ = TestDefinition("Adam");
  test::TempDir dir_;
  Contents contents_;
  checkpoint::Loaded loaded_;
};

TEST_F(PsRestoreTest, MayBeRepeated) {
  Cluster cluster(3, definition_);
  auto client = cluster.MakeClient();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(RestoreRows(loaded_, definition_, *client, 5).ok());
  }
  ASSERT_TRUE(RestoreDense(loaded_, definition_, *client).ok());
  const std::vector<uint64_t> digests = cluster.Digests();
  EXPECT_EQ(digests, PlainDigests());
  // Another worker that is late changes nothing.
  EXPECT_TRUE(Restore(loaded_, definition_, *cluster.MakeClient()).ok());
  EXPECT_EQ(cluster.Digests(), digests);
}

TEST_F(PsRestoreTest, SurvivesTheServersInTheMiddle) {
  Cluster cluster(3, definition_);
  ASSERT_TRUE(
      RestoreRows(loaded_, definition_, *cluster.MakeClient(), 5, 3).ok());
  const std::vector<uint64_t> half = cluster.Digests();
  cluster.Restart();
  EXPECT_EQ(cluster.Digests(), half);
  auto client = cluster.MakeClient();
  ASSERT_TRUE(RestoreRows(loaded_, definition_, *client, 5).ok());
  cluster.Restart();
  ASSERT_TRUE(RestoreDense(loaded_, definition_, *client).ok());
  cluster.Restart();
  EXPECT_EQ(cluster.Digests(), PlainDigests());
  EXPECT_TRUE(ReadAll(*client, definition_) == contents_);
}

TEST_F(PsRestoreTest, LeavesNothingOfARestoreThatWasBrokenOff) {
  Cluster cluster(3, definition_);
  auto client = cluster.MakeClient();
  // Rows of another version, and one that is in no other.
  ASSERT_TRUE(RestoreRows(loaded_, definition_, *client, 4).ok());
  const std::vector<float> ones(3 * 8, 1.0f);
  ASSERT_TRUE(client
                  ->RestoreRows(4, 0, {1000001, 1000002, 1000003}, ones.data(),
                                {ones.data(), ones.data()})
                  .ok());
  ASSERT_TRUE(Restore(loaded_, definition_, *client).ok());
  EXPECT_TRUE(ReadAll(*client, definition_) == contents_);
  EXPECT_EQ(cluster.Digests(), PlainDigests());
}

TEST_F(PsRestoreTest, ANewModelHasNoRowsOfACheckpoint) {
  Cluster cluster(3, definition_);
  auto client = cluster.MakeClient();
  ASSERT_TRUE(RestoreRows(loaded_, definition_, *client, 5).ok());
  ASSERT_TRUE(client->SetInitialValues(InitialDense(definition_).data()).ok());
  const Contents contents = ReadAll(*client, definition_);
  EXPECT_EQ(contents.version, 0);
  EXPECT_TRUE(contents.tables[0].empty());
  EXPECT_TRUE(contents.tables[1].empty());
}

TEST_F(PsRestoreTest, RowsWithoutSlotsStartWithNewOnes) {
  v1::PsDefinition definition = definition_;
  definition.set_optimizer("Adagrad(initial_accumulator_value=0.25)");
  Cluster cluster(2, definition);
  auto client = cluster.MakeClient();
  for (const checkpoint::EmbeddingRows& part : loaded_.embedding_tables) {
    const uint32_t table = part.name == "wide" ? 0 : 1;
    ASSERT_TRUE(
        client->RestoreRows(5, table, part.ids, part.rows.bytes.data(), {})
            .ok());
  }
  ASSERT_TRUE(
      client->SetInitialValues(InitialDense(definition).data(), {}, 5).ok());
  const Contents contents = ReadAll(*client, definition);
  EXPECT_EQ(contents.version, 5);
  EXPECT_THAT(contents.dense[1], testing::Each(0.25f));
  ASSERT_EQ(contents.tables[0].size(), contents_.tables[0].size());
  for (const auto& [id, row] : contents.tables[0]) {
    const std::vector<float>& saved = contents_.tables[0].at(id);
    EXPECT_TRUE(std::equal(row.begin(), row.begin() + 8, saved.begin()));
    EXPECT_THAT(std::vector<float>(row.begin() + 8, row.end()),
                testing::ElementsAreArray(std::vector<float>(8, 0.25f)));
  }
}

TEST_F(PsRestoreTest, RefusesWhatIsWrong) {
  Cluster cluster(2, definition_);
  auto client = cluster.MakeClient();
  const std::vector<uint64_t> digests = cluster.Digests();
  std::vector<float> values(8 * 2, 1.0f);
  const auto restore = [&](uint32_t table, std::vector<const void*> slots,
                           int64_t version = 5) {
    return client->RestoreRows(version, table, {1, 2}, values.data(), slots);
  };
  EXPECT_THAT(std::string(restore(7, {}).message()),
              HasSubstr("table number 7 of 2"));
  EXPECT_THAT(std::string(restore(0, {values.data()}).message()),
              HasSubstr("1 slots for Adam, which has 2"));
  EXPECT_THAT(std::string(restore(0, {}, -1).message()),
              HasSubstr("version -1"));
  values[15] = std::nanf("");
  EXPECT_THAT(std::string(restore(0, {}).message()),
              HasSubstr("restore rows of table wide: a value is not finite"));
  values[15] = 1;
  EXPECT_THAT(
      std::string(
          client->RestoreRows(5, 0, {1, 1}, values.data(), {}).message()),
      HasSubstr("row 1 is there twice"));
  std::vector<float> dense = InitialDense(definition_);
  EXPECT_TRUE(absl::IsInvalidArgument(
      client->SetInitialValues(dense.data(), {dense.data()}, 5)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(client->SetInitialValues(dense.data(), {}, -2)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      client
          ->ReadTable(2,
                      [](auto, auto, auto, auto) { return absl::OkStatus(); })
          .status()));
  std::vector<std::vector<float>> arrays;
  EXPECT_TRUE(absl::IsNotFound(client->ReadDense(arrays).status()));
  EXPECT_EQ(cluster.Digests(), digests);
}

TEST_F(PsRestoreTest, ReadingNeedsOneVersion) {
  Cluster cluster(2, definition_, /*snapshot_bytes=*/1 << 30);
  auto client = cluster.MakeClient(absl::Milliseconds(100));
  ASSERT_TRUE(Restore(loaded_, definition_, *client).ok());
  // Only one of them gets the push.
  cluster.End(1);
  std::mt19937_64 random(3);
  const Gradient gradient = RandomGradient(definition_, 100, random);
  ASSERT_TRUE(absl::IsDeadlineExceeded(Push(*client, gradient)));
  cluster.Start(1);
  auto reader = cluster.MakeClient();
  std::vector<std::vector<float>> arrays;
  const absl::Status read = reader->ReadDense(arrays).status();
  EXPECT_TRUE(absl::IsAborted(read)) << read;
  EXPECT_THAT(std::string(read.message()),
              HasSubstr("parameter server 0 has version 6, parameter server 1 "
                        "version 5"));
  EXPECT_TRUE(
      absl::IsAborted(reader
                          ->ReadTable(0, [](auto, auto, auto,
                                            auto) { return absl::OkStatus(); })
                          .status()));
  ASSERT_TRUE(Push(*reader, gradient).ok());
  EXPECT_EQ(ReadAll(*reader, definition_).version, 6);
  // An error of whoever reads ends it.
  EXPECT_EQ(
      reader
          ->ReadTable(0, [](auto, auto, auto,
                            auto) { return absl::CancelledError("enough"); })
          .status(),
      absl::CancelledError("enough"));
}

}  // namespace
}  // namespace elasticdl::ps
