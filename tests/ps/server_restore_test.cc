// The state machine with rows of a checkpoint: what is refused, what a log and
// a snapshot keep, and in which parts everything can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model.h"
#include "server_state.h"
#include "snapshot.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using ::testing::HasSubstr;

// Ids of table 0 that `server` holds.
std::vector<int64_t> OwnIds(const v1::PsDefinition& definition,
                            const BucketMap& map, int server, size_t count) {
  std::vector<int64_t> ids;
  const uint64_t table = HashName(definition.tables(0).name());
  for (int64_t id = 0; ids.size() < count; ++id) {
    if (map.owner(BucketOf(HashRow(table, id))) == server) ids.push_back(id);
  }
  return ids;
}

EntryBytes RowsEntry(const BucketMap& map, const std::vector<int64_t>& ids,
                     int64_t version, float first = 0) {
  EntryBytes out;
  v1::PsRestoreRows& rows = *out.entry.mutable_restore_rows();
  rows.set_map_version(map.version());
  rows.set_version(version);
  rows.set_rows(ids.size());
  rows.set_slots(true);
  out.payload.assign(reinterpret_cast<const char*>(ids.data()),
                     ids.size() * sizeof(int64_t));
  // Values, then the one slot of Adagrad; by id, not by position.
  for (const float part : {0.0f, 0.5f}) {
    for (const int64_t id : ids) {
      for (int d = 0; d < 8; ++d) {
        const float value =
            first + part + static_cast<float>(id) + static_cast<float>(d);
        out.payload.append(reinterpret_cast<const char*>(&value),
                           sizeof(value));
      }
    }
  }
  return out;
}

class ServerRestoreTest : public testing::Test {
 protected:
  ServerRestoreTest() : state_(Prepared()) {}

  ServerState Prepared(size_t memory_limit = 0) {
    ServerState state({0, memory_limit});
    v1::PsEntry entry;
    *entry.mutable_definition() = definition_;
    EXPECT_TRUE(state.Apply(entry, "").ok());
    *entry.mutable_map() = ToProto(map_);
    EXPECT_TRUE(state.Apply(entry, "").ok());
    return state;
  }
  static absl::Status Accept(ServerState& state, const EntryBytes& entry) {
    const absl::Status checked = state.Check(entry.entry, entry.payload);
    return checked.ok() ? state.Apply(entry.entry, entry.payload) : checked;
  }
  absl::Status Accept(const EntryBytes& entry) { return Accept(state_, entry); }
  // By parts of `max_bytes`.
  std::string ReadTable(const ServerState& state, uint64_t max_bytes,
                        int* parts = nullptr) {
    std::string all;
    v1::PsRead read;
    read.set_map_version(map_.version());
    int32_t next = 0;
    while (next < kBuckets) {
      read.mutable_rows()->set_begin(next);
      read.mutable_rows()->set_max_bytes(max_bytes);
      v1::PsReply reply;
      Buffer out;
      out.Resize(0);
      const absl::Status status = state.Read(read, reply, out);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok() || reply.next_bucket() <= next) return "";
      EXPECT_EQ(out.size(), reply.rows() * (8 + 2 * 8 * sizeof(float)));
      next = reply.next_bucket();
      all.append(out.data(), out.size());
      if (parts != nullptr) ++*parts;
    }
    return all;
  }

  const v1::PsDefinition definition_ = TestDefinition("Adagrad");
  const BucketMap map_ = BucketMap::Even(2);
  const std::vector<int64_t> ids_ = OwnIds(definition_, map_, 0, 300);
  ServerState state_;
};

TEST_F(ServerRestoreTest, RefusesAndAppliesNothing) {
  const uint64_t digest = state_.Digest();
  const auto refused = [&](const EntryBytes& entry) {
    const absl::Status status = Accept(entry);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(state_.Digest(), digest);
    return std::string(status.message());
  };
  const EntryBytes good = RowsEntry(map_, ids_, 5);
  EntryBytes bad = good;
  bad.entry.mutable_restore_rows()->set_table(2);
  EXPECT_THAT(refused(bad), HasSubstr("table number 2 of 2"));
  bad = good;
  bad.entry.mutable_restore_rows()->set_table(1);
  EXPECT_THAT(refused(bad), HasSubstr("300 rows of 32 bytes"));
  bad = good;
  bad.payload.pop_back();
  EXPECT_THAT(refused(bad), HasSubstr("300 rows of 72 bytes in 21599 bytes"));
  bad = good;
  bad.entry.mutable_restore_rows()->set_rows(
      std::numeric_limits<uint64_t>::max() / 9);
  refused(bad);
  bad = good;
  bad.entry.mutable_restore_rows()->set_slots(false);
  EXPECT_THAT(refused(bad), HasSubstr("300 rows of 40 bytes"));
  bad = good;
  const float infinite = std::numeric_limits<float>::infinity();
  bad.payload.replace(bad.payload.size() - 4, 4,
                      reinterpret_cast<const char*>(&infinite), 4);
  EXPECT_THAT(refused(bad), HasSubstr("table wide: a value is not finite"));
  EXPECT_THAT(refused(RowsEntry(map_, {ids_[0], ids_[1], ids_[0]}, 5)),
              HasSubstr("is there twice"));
  EXPECT_THAT(refused(RowsEntry(map_, {OwnIds(definition_, map_, 1, 1)[0]}, 5)),
              HasSubstr("is on server 1, not on 0"));
  EXPECT_THAT(refused(RowsEntry(map_, ids_, -1)), HasSubstr("version -1"));
  bad = good;
  bad.entry.mutable_restore_rows()->set_map_version(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Accept(bad)));
  // Initial values with a part of the slots only.
  bad = InitialPart(definition_, map_, 0);
  bad.entry.mutable_initial_values()->set_slots(true);
  EXPECT_THAT(refused(bad), HasSubstr("bytes instead of"));
  bad.entry.mutable_initial_values()->set_slots(false);
  bad.entry.mutable_initial_values()->set_version(-1);
  EXPECT_THAT(refused(bad), HasSubstr("version -1"));
  ASSERT_TRUE(Accept(good).ok());
  ASSERT_TRUE(Accept(InitialPart(definition_, map_, 0)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Accept(good)));
}

TEST_F(ServerRestoreTest, ComesAfterTheMap) {
  ServerState state({0, 0});
  const EntryBytes rows = RowsEntry(map_, ids_, 5);
  EXPECT_TRUE(absl::IsNotFound(state.Check(rows.entry, rows.payload)));
  v1::PsEntry entry;
  *entry.mutable_definition() = definition_;
  ASSERT_TRUE(state.Apply(entry, "").ok());
  EXPECT_TRUE(absl::IsNotFound(state.Check(rows.entry, rows.payload)));
}

TEST_F(ServerRestoreTest, ReadsTheSameHoweverRowsCame) {
  ServerState other = Prepared();
  const std::vector<int64_t> backwards(ids_.rbegin(), ids_.rend());
  ASSERT_TRUE(Accept(RowsEntry(map_, ids_, 0)).ok());
  ASSERT_TRUE(Accept(other, RowsEntry(map_, backwards, 0)).ok());
  for (ServerState* state : {&state_, &other}) {
    ASSERT_TRUE(Accept(*state, InitialPart(definition_, map_, 0)).ok());
  }
  EXPECT_EQ(state_.Digest(), other.Digest());
  int many = 0;
  int one = 0;
  const std::string parts = ReadTable(state_, 1, &many);
  EXPECT_EQ(parts, ReadTable(other, 1));
  EXPECT_EQ(ReadTable(state_, 1 << 30, &one), ReadTable(other, 1 << 30));
  EXPECT_EQ(one, 1);
  // A bucket with rows each.
  EXPECT_GT(many, 100);
  EXPECT_EQ(parts.size(), 300u * 72);
}

TEST_F(ServerRestoreTest, ASnapshotInTheMiddleKeepsTheVersion) {
  test::TempDir dir;
  ASSERT_TRUE(Accept(RowsEntry(map_, ids_, 5)).ok());
  const std::string path = dir.Path("snapshot");
  ASSERT_EQ(WriteSnapshot(path, state_.Header(3).SerializeAsString(),
                          state_.Payloads(), state_),
            0);
  int64_t position = 0;
  auto read = ReadSnapshot(path, {0, 0}, position);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Digest(), state_.Digest());
  // It knows that rows of another version do not belong here.
  const EntryBytes few = RowsEntry(map_, {ids_[7]}, 6, 100);
  for (ServerState* state : {&state_, &*read}) {
    ASSERT_TRUE(Accept(*state, few).ok());
    EXPECT_EQ(state->tables()[0]->rows(), 1);
    EntryBytes values = InitialPart(definition_, map_, 0);
    values.entry.mutable_initial_values()->set_version(6);
    ASSERT_TRUE(Accept(*state, values).ok());
    EXPECT_EQ(state->version(), 6);
    EXPECT_EQ(state->tables()[0]->rows(), 1);
  }
  EXPECT_EQ(read->Digest(), state_.Digest());
}

TEST_F(ServerRestoreTest, AnotherMapBeginsAgain) {
  ASSERT_TRUE(Accept(RowsEntry(map_, ids_, 5)).ok());
  v1::PsEntry entry;
  const BucketMap next = map_.Rebalanced(3);
  *entry.mutable_map() = ToProto(next);
  EXPECT_TRUE(absl::IsInvalidArgument(Accept({entry, ""})));
  entry.mutable_map()->set_moves(true);
  ASSERT_TRUE(Accept({entry, ""}).ok());
  EXPECT_EQ(state_.tables()[0]->rows(), 0);
  EXPECT_TRUE(absl::IsAlreadyExists(Accept(RowsEntry(map_, ids_, 5))));
}

TEST_F(ServerRestoreTest, MemoryIsLimited) {
  const EmbeddingTable::Growth growth =
      state_.tables()[0]->GrowthBySet(ids_, /*cleared=*/true);
  EXPECT_EQ(growth.rows, 300);
  EXPECT_GT(growth.bytes, 300 * state_.tables()[0]->row_bytes());
  // The others are in other buckets and need a little more or less.
  ServerState small = Prepared(state_.EmptyBytes() + growth.bytes * 11 / 10);
  ASSERT_TRUE(Accept(small, RowsEntry(map_, ids_, 5)).ok());
  // The same rows again, and others in their place, need no more.
  EXPECT_TRUE(Accept(small, RowsEntry(map_, ids_, 5)).ok());
  std::vector<int64_t> others = OwnIds(definition_, map_, 0, 600);
  others.erase(others.begin(), others.begin() + 300);
  const absl::Status more = Accept(small, RowsEntry(map_, others, 5));
  EXPECT_TRUE(absl::IsResourceExhausted(more)) << more;
  EXPECT_THAT(std::string(more.message()), HasSubstr("300 more rows of table"));
  EXPECT_TRUE(Accept(small, RowsEntry(map_, others, 6)).ok());
  EXPECT_EQ(small.tables()[0]->rows(), 300);
}

TEST_F(ServerRestoreTest, ReadingRefusesWhatIsNotThere) {
  v1::PsRead read;
  v1::PsReply reply;
  Buffer out;
  read.set_map_version(map_.version());
  EXPECT_TRUE(absl::IsNotFound(state_.Read(read, reply, out)));
  ASSERT_TRUE(Accept(InitialPart(definition_, map_, 0)).ok());
  EXPECT_TRUE(state_.Read(read, reply, out).ok());
  EXPECT_EQ(out.size(), 2 * state_.dense()[0].size() * sizeof(float));
  read.set_map_version(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(state_.Read(read, reply, out)));
  read.set_map_version(7);
  EXPECT_TRUE(absl::IsUnavailable(state_.Read(read, reply, out)));
  read.set_map_version(map_.version());
  read.mutable_rows()->set_table(2);
  EXPECT_TRUE(absl::IsInvalidArgument(state_.Read(read, reply, out)));
  read.mutable_rows()->set_table(0);
  read.mutable_rows()->set_begin(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(state_.Read(read, reply, out)));
  read.mutable_rows()->set_begin(kBuckets + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(state_.Read(read, reply, out)));
}

}  // namespace
}  // namespace elasticdl::ps
