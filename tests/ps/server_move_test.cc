// Buckets that move between servers while workers push, servers die and
// requests are repeated: in the end every minibatch is in every bucket once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "elasticdl/ps/dense_layout.h"
#include "exact_model.h"
#include "model.h"
#include "server_state.h"

namespace elasticdl::ps {
namespace {

constexpr int kMostServers = 5;

class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {
    for (int i = 0; i < kMostServers; ++i) servers_.emplace_back(i);
    map_ = BucketMap::Even(2);
    Begin(definition_, map_, servers_);
    v1::PsEntry entry;
    *entry.mutable_definition() = definition_;
    for (size_t i = 2; i < servers_.size(); ++i) {
      EXPECT_TRUE(servers_[i].Accept(entry, "").ok());
    }
  }

  void Act() {
    const uint64_t action = random_() % 20;
    if (action < 10) {
      PushSome();
    } else if (action < 12) {
      StartWorker();
    } else if (action < 13) {
      BeginMove();
    } else if (action < 18) {
      GoOnMoving();
    } else if (action < 19) {
      servers_[random_() % servers_.size()].Restart();
    } else {
      // A worker dies; another one computes the minibatch again.
      for (Push& push : pushes_) push.acknowledged.clear();
    }
  }

  void Finish() {
    for (int i = 0; i < 100000 && (!pushes_.empty() || Moving()); ++i) {
      GoOnMoving();
      PushSome();
    }
    ASSERT_TRUE(pushes_.empty());
    ASSERT_FALSE(Moving());
    for (const TestServer& server : servers_) {
      if (server.id >= map_.servers()) continue;
      ExpectExact(definition_, map_, next_, server);
    }
  }

  int moves() const { return moves_; }

 private:
  struct Push {
    int64_t number;
    // Of the newest map.
    std::set<int> acknowledged;
  };

  void StartWorker() {
    if (pushes_.size() < 4) pushes_.push_back({next_++, {}});
  }

  // Some worker sends a part of its minibatch to some server.
  void PushSome() {
    if (pushes_.empty()) return;
    const size_t which = random_() % pushes_.size();
    Push& push = pushes_[which];
    const int to =
        static_cast<int>(random_() % static_cast<uint64_t>(map_.servers()));
    const EntryBytes part =
        PartOf(ExactGradient(definition_, push.number), definition_, map_, to);
    const absl::Status status =
        servers_[static_cast<size_t>(to)].Accept(part.entry, part.payload);
    if (status.ok() || absl::IsAlreadyExists(status)) {
      push.acknowledged.insert(to);
    } else {
      // It has not heard of the map, or waits for buckets.
      EXPECT_TRUE(absl::IsFailedPrecondition(status) ||
                  absl::IsUnavailable(status) || absl::IsNotFound(status))
          << status;
    }
    if (static_cast<int>(push.acknowledged.size()) < map_.servers()) return;
    pushes_.erase(pushes_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  bool Moving() const {
    for (const TestServer& server : servers_) {
      if (!server.state->leaving().empty()) return true;
      if (!server.state->awaited().empty()) return true;
      if (server.id < map_.servers() &&
          server.state->map().version() != map_.version()) {
        return true;
      }
      // One that leaves must hear of it, too.
      if (!server.state->map().empty() &&
          server.state->map().version() != map_.version()) {
        return true;
      }
    }
    return false;
  }

  void BeginMove() {
    if (Moving()) return;
    ++moves_;
    map_ = map_.Rebalanced(1 + static_cast<int>(random_() % kMostServers));
    for (Push& push : pushes_) push.acknowledged.clear();
  }

  void GoOnMoving() {
    if (!Moving()) return;
    TestServer& server = servers_[random_() % servers_.size()];
    const bool part_of_it =
        server.id < map_.servers() || !server.state->map().empty();
    if (part_of_it && server.state->map().version() < map_.version()) {
      v1::PsEntry entry;
      *entry.mutable_map() = ToProto(map_);
      entry.mutable_map()->set_moves(true);
      const absl::Status status = server.Accept(entry, "");
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    const std::map<int, int64_t> leaving = server.state->leaving();
    if (leaving.empty()) return;
    const auto any =
        std::next(leaving.begin(),
                  static_cast<std::ptrdiff_t>(random_() % leaving.size()));
    const int bucket = any->first;
    v1::PsFetch fetch;
    fetch.set_bucket(bucket);
    fetch.set_map_version(any->second);
    v1::PsReply reply;
    Buffer payload;
    ASSERT_TRUE(server.state->Fetch(fetch, reply, payload).ok());
    const v1::PsEntry& entry = reply.entry();
    TestServer& to = servers_[static_cast<size_t>(map_.owner(bucket))];
    const absl::Status status = to.Accept(entry, std::string(payload.view()));
    // It has not heard of the map yet.
    if (absl::IsNotFound(status)) return;
    ASSERT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
    // The answer may be lost: then the bucket is sent again.
    if (random_() % 3 == 0) return;
    v1::PsEntry forget;
    forget.mutable_forget()->set_bucket(bucket);
    forget.mutable_forget()->set_map_version(entry.import().map_version());
    ASSERT_TRUE(server.Accept(forget, "").ok());
  }

  const v1::PsDefinition definition_ = ExactDefinition();
  std::mt19937_64 random_;
  std::vector<TestServer> servers_;
  BucketMap map_;
  std::vector<Push> pushes_;
  int64_t next_ = 0;
  int moves_ = 0;
};

TEST(ServerMoveTest, RandomSchedules) {
  int moves = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Job job(seed);
    for (int i = 0; i < 400; ++i) {
      job.Act();
      if (testing::Test::HasFatalFailure()) return;
    }
    job.Finish();
    if (testing::Test::HasFailure()) return;
    moves += job.moves();
  }
  EXPECT_GT(moves, 50);
}

// ---- synchronous versions ----

class CommitTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      servers_.emplace_back(i);
      v1::PsEntry entry;
      *entry.mutable_definition() = definition_;
      ASSERT_TRUE(servers_.back().Accept(entry, "").ok());
      *entry.mutable_map() = ToProto(map_);
      ASSERT_TRUE(servers_.back().Accept(entry, "").ok());
      const EntryBytes values = InitialPart(definition_, map_, i);
      ASSERT_TRUE(servers_.back().Accept(values.entry, values.payload).ok());
    }
  }
  absl::Status Stage(const Gradient& gradient, int64_t base) {
    absl::Status status;
    for (TestServer& server : servers_) {
      EntryBytes part = PartOf(gradient, definition_, map_, server.id);
      part.entry.mutable_push()->set_stage(true);
      part.entry.mutable_push()->set_base_version(base);
      status = server.Accept(part.entry, part.payload);
      if (!status.ok()) return status;
    }
    return status;
  }
  absl::Status Commit(int64_t version, const std::vector<Gradient>& gradients) {
    v1::PsEntry entry;
    v1::PsCommit& commit = *entry.mutable_commit();
    commit.set_version(version);
    commit.set_map_version(map_.version());
    for (const Gradient& gradient : gradients) {
      v1::PsRanges& ranges = *commit.add_pushes();
      ranges.set_shard(gradient.name.shard());
      ranges.set_epoch(gradient.name.epoch());
      ranges.add_bounds(gradient.name.begin());
      ranges.add_bounds(gradient.name.end());
    }
    absl::Status status;
    for (TestServer& server : servers_) {
      status = server.Accept(entry, "");
      if (!status.ok()) return status;
    }
    return status;
  }

  const v1::PsDefinition definition_ = TestDefinition("Adam");
  const BucketMap map_ = BucketMap::Even(2);
  std::vector<TestServer> servers_;
};

// One worker: synchronous training is plain training, bit by bit.
TEST_F(CommitTest, TheMeanOfOneIsItself) {
  ReferenceModel reference(definition_);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < 5; ++i) {
    const Gradient gradient = RandomGradient(definition_, i, random);
    ASSERT_TRUE(Stage(gradient, i).ok());
    ASSERT_TRUE(Commit(i + 1, {gradient}).ok());
    reference.Apply(gradient);
    for (const TestServer& server : servers_) {
      size_t at = 0;
      for (const DenseSlice& slice :
           DenseLayout(definition_, map_, server.id)) {
        for (int64_t k = 0; k < slice.size; ++k) {
          ASSERT_EQ(server.state->dense()[0][at++],
                    reference.dense()[static_cast<size_t>(slice.offset + k)]);
        }
      }
    }
  }
}

// The original averaged dense gradients and summed sparse ones.
TEST_F(CommitTest, DenseAndSparseAreAveragedAlike) {
  std::mt19937_64 random(1);
  Gradient a = RandomGradient(definition_, 0, random);
  Gradient b = RandomGradient(definition_, 1, random);
  b.name.set_end(b.name.begin() + 32);
  ASSERT_TRUE(Stage(a, 0).ok());
  ASSERT_TRUE(Stage(b, 0).ok());
  ASSERT_TRUE(Commit(1, {a, b}).ok());
  Gradient mean = a;
  for (size_t i = 0; i < mean.dense.size(); ++i) {
    mean.dense[i] = (64 * a.dense[i] + 32 * b.dense[i]) / 96;
  }
  for (size_t t = 0; t < 2; ++t) {
    const auto dim =
        static_cast<size_t>(definition_.tables(static_cast<int>(t)).dim());
    std::map<int64_t, std::vector<float>> rows;
    const auto add = [&](const Gradient& g, float weight) {
      for (size_t i = 0; i < g.ids[t].size(); ++i) {
        auto& row = rows[g.ids[t][i]];
        row.resize(dim);
        for (size_t d = 0; d < dim; ++d) {
          row[d] += weight * g.rows[t][i * dim + d];
        }
      }
    };
    add(a, 64.0f / 96);
    add(b, 32.0f / 96);
    mean.ids[t].clear();
    mean.rows[t].clear();
    for (const auto& [id, row] : rows) {
      mean.ids[t].push_back(id);
      mean.rows[t].insert(mean.rows[t].end(), row.begin(), row.end());
    }
  }
  ReferenceModel reference(definition_);
  reference.Apply(mean);
  for (const TestServer& server : servers_) {
    EXPECT_EQ(server.state->version(), 1);
    size_t at = 0;
    for (const DenseSlice& slice : DenseLayout(definition_, map_, server.id)) {
      for (int64_t k = 0; k < slice.size; ++k) {
        ASSERT_NEAR(server.state->dense()[0][at++],
                    reference.dense()[static_cast<size_t>(slice.offset + k)],
                    1e-5);
      }
    }
    for (size_t t = 0; t < 2; ++t) {
      const std::string& name = definition_.tables(static_cast<int>(t)).name();
      for (const int64_t id : mean.ids[t]) {
        if (map_.owner(BucketOf(HashRow(HashName(name), id))) != server.id) {
          continue;
        }
        const auto expected = reference.Row(static_cast<uint32_t>(t), id);
        std::vector<float> got(expected.size());
        server.state->tables()[t]->Pull({&id, 1}, got.data());
        for (size_t d = 0; d < got.size(); ++d) {
          ASSERT_NEAR(got[d], expected[d], 1e-5);
        }
      }
    }
  }
}

TEST_F(CommitTest, OnlyWhatIsStagedIsCommitted) {
  std::mt19937_64 random(1);
  const Gradient a = RandomGradient(definition_, 0, random);
  const Gradient b = RandomGradient(definition_, 1, random);
  EXPECT_TRUE(absl::IsNotFound(Commit(1, {a})));
  ASSERT_TRUE(Stage(a, 0).ok());
  EXPECT_TRUE(absl::IsNotFound(Commit(1, {a, b})));
  EXPECT_TRUE(absl::IsNotFound(Commit(2, {a})));
  EXPECT_TRUE(absl::IsInvalidArgument(Commit(1, {a, a})));
  EXPECT_TRUE(absl::IsInvalidArgument(Commit(1, {})));
  ASSERT_TRUE(Commit(1, {a}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Commit(1, {a})));
  // It is in the model: staging it again changes nothing.
  EXPECT_TRUE(absl::IsAlreadyExists(Stage(a, 1)));
  // The log has all of it.
  for (TestServer& server : servers_) server.Restart();
}

// The master repeats it to whoever takes over or comes back, and by then
// buckets may have moved.
TEST_F(CommitTest, AVersionThatIsThereIsKnownWhateverTheMapIs) {
  std::mt19937_64 random(1);
  const Gradient a = RandomGradient(definition_, 0, random);
  ASSERT_TRUE(Stage(a, 0).ok());
  ASSERT_TRUE(Commit(1, {a}).ok());
  v1::PsEntry entry;
  *entry.mutable_map() = ToProto(map_.Rebalanced(1));
  entry.mutable_map()->set_moves(true);
  for (TestServer& server : servers_) {
    ASSERT_TRUE(server.Accept(entry, "").ok());
  }
  ASSERT_FALSE(servers_[0].state->awaited().empty());
  EXPECT_TRUE(absl::IsAlreadyExists(Commit(1, {a})));
  EXPECT_FALSE(absl::IsAlreadyExists(Commit(2, {a})));
}

TEST_F(CommitTest, AFresherGradientTakesThePlaceOfAnOlderOne) {
  std::mt19937_64 random(1);
  const Gradient old = RandomGradient(definition_, 0, random);
  Gradient fresh = RandomGradient(definition_, 0, random);
  ASSERT_TRUE(Stage(old, 3).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Stage(fresh, 3)));
  ASSERT_TRUE(Stage(fresh, 4).ok());
  ASSERT_TRUE(Commit(1, {fresh}).ok());
  ReferenceModel reference(definition_);
  reference.Apply(fresh);
  const auto slices = DenseLayout(definition_, map_, 0);
  EXPECT_EQ(servers_[0].state->dense()[0][0],
            reference.dense()[static_cast<size_t>(slices[0].offset)]);
}

}  // namespace
}  // namespace elasticdl::ps
