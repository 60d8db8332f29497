// The state machine of a parameter server: against the reference model, and
// against everything that may be wrong with an entry.
#include "server_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/ps/dense_layout.h"
#include "model.h"

namespace elasticdl::ps {
namespace {

using ::testing::HasSubstr;

absl::Status Feed(ServerState& state, const EntryBytes& part) {
  const absl::Status checked = state.Check(part.entry, part.payload);
  if (!checked.ok()) return checked;
  return state.Apply(part.entry, part.payload);
}

// Servers of one job.
struct Cluster {
  Cluster(int servers, const std::string& optimizer)
      : definition(TestDefinition(optimizer)), map(BucketMap::Even(servers)) {
    for (int i = 0; i < servers; ++i) {
      states.push_back(
          std::make_unique<ServerState>(ServerState::Options{i, 0}));
      v1::PsEntry entry;
      *entry.mutable_definition() = definition;
      EXPECT_TRUE(Feed(*states.back(), {entry, ""}).ok());
      *entry.mutable_map() = ToProto(map);
      EXPECT_TRUE(Feed(*states.back(), {entry, ""}).ok());
      EXPECT_TRUE(Feed(*states.back(), InitialPart(definition, map, i)).ok());
    }
  }
  absl::Status Push(const Gradient& gradient, int server) {
    return Feed(*states[static_cast<size_t>(server)],
                PartOf(gradient, definition, map, server));
  }

  const v1::PsDefinition definition;
  const BucketMap map;
  std::vector<std::unique_ptr<ServerState>> states;
};

void ExpectEqual(const Cluster& cluster, ReferenceModel& reference,
                 const Gradient& ids) {
  std::vector<float> dense(reference.dense().size());
  for (size_t server = 0; server < cluster.states.size(); ++server) {
    const ServerState& state = *cluster.states[server];
    v1::PsPull pull;
    pull.set_map_version(cluster.map.version());
    pull.set_dense(true);
    pull.set_dense_version(-1);
    const EntryBytes part =
        PartOf(ids, cluster.definition, cluster.map, static_cast<int>(server));
    std::string payload;
    size_t at = 0;
    for (const v1::PsTablePart& p : part.entry.push().parts()) {
      *pull.add_parts() = p;
      payload.append(part.payload, at, p.rows() * sizeof(int64_t));
      at += p.rows() * sizeof(int64_t);
    }
    v1::PsReply reply;
    Buffer out;
    ASSERT_TRUE(state.Pull(pull, payload, reply, out).ok());
    ASSERT_TRUE(reply.dense());
    const auto* from = reinterpret_cast<const float*>(out.data());
    for (const DenseSlice& slice : DenseLayout(cluster.definition, cluster.map,
                                               static_cast<int>(server))) {
      for (int64_t i = 0; i < slice.size; ++i) {
        ASSERT_EQ(*from++,
                  reference.dense()[static_cast<size_t>(slice.offset + i)]);
      }
    }
    const auto* id = reinterpret_cast<const int64_t*>(payload.data());
    for (const v1::PsTablePart& p : pull.parts()) {
      for (uint64_t i = 0; i < p.rows(); ++i, ++id) {
        for (const float value : reference.Row(p.table(), *id)) {
          ASSERT_EQ(*from++, value) << "row " << *id;
        }
      }
    }
  }
}

TEST(ServerStateTest, AnyNumberOfServersIsOneModel) {
  for (const char* optimizer :
       {"SGD(lr=0.1)", "SGD(lr=0.1,momentum=0.9,weight_decay=0.01)",
        "Adam(lr=0.01)", "Adam(lr=0.01,amsgrad=1)", "AdamW", "Adagrad",
        "RMSprop(centered=1,momentum=0.5)", "Adadelta", "Adamax", "Nadam",
        "Ftrl(lr=0.1,l1_regularization_strength=0.01)"}) {
    for (const int servers : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << optimizer << ", " << servers);
      Cluster cluster(servers, optimizer);
      ReferenceModel reference(cluster.definition);
      std::mt19937_64 random(3);
      Gradient last;
      for (int64_t i = 0; i < 6; ++i) {
        last = RandomGradient(cluster.definition, i, random);
        reference.Apply(last);
        for (int server = 0; server < servers; ++server) {
          ASSERT_TRUE(cluster.Push(last, server).ok());
        }
        ExpectEqual(cluster, reference, last);
      }
      // Ids that nobody has pushed to.
      ExpectEqual(cluster, reference,
                  RandomGradient(cluster.definition, 99, random));
    }
  }
}

// Workers that die in the middle of a push, and others that compute it again:
// each server applies each minibatch once.
TEST(ServerStateTest, RepeatedPushesCountOnce) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Cluster cluster(3, "Adagrad");
    std::vector<int64_t> applied(3, 0);
    for (int64_t number = 0; number < 8; ++number) {
      std::vector<bool> there(3, false);
      // Each try computes another gradient, on another model.
      for (bool all = false; !all;) {
        const Gradient gradient =
            RandomGradient(cluster.definition, number, random);
        const size_t reached = random() % 4;
        for (size_t server = 0; server < reached; ++server) {
          const uint64_t before = cluster.states[server]->Digest();
          const absl::Status pushed =
              cluster.Push(gradient, static_cast<int>(server));
          if (there[server]) {
            EXPECT_TRUE(absl::IsAlreadyExists(pushed)) << pushed;
            EXPECT_EQ(cluster.states[server]->Digest(), before);
          } else {
            EXPECT_TRUE(pushed.ok()) << pushed;
            there[server] = true;
            ++applied[server];
          }
        }
        all = there[0] && there[1] && there[2];
      }
    }
    for (size_t server = 0; server < 3; ++server) {
      EXPECT_EQ(cluster.states[server]->version(), 8);
      EXPECT_EQ(applied[server], 8);
    }
  }
}

TEST(ServerStateTest, TheSameEntriesGiveTheSameBits) {
  std::vector<uint64_t> digests;
  for (int run = 0; run < 2; ++run) {
    std::mt19937_64 random(17);
    Cluster cluster(2, "Adam");
    for (int64_t i = 0; i < 20; ++i) {
      const Gradient gradient = RandomGradient(cluster.definition, i, random);
      for (int server : {0, 1}) {
        ASSERT_TRUE(cluster.Push(gradient, server).ok());
      }
    }
    for (const auto& state : cluster.states) {
      digests.push_back(state->Digest());
    }
  }
  EXPECT_EQ(digests[0], digests[2]);
  EXPECT_EQ(digests[1], digests[3]);
  EXPECT_NE(digests[0], digests[1]);
}

// The original started Adam's v and Adagrad's sum from the row's own
// initializer, and took roots of negative numbers.
TEST(ServerStateTest, SlotsStartAtTheOptimizersOwnValue) {
  for (const char* optimizer : {"Adam(lr=0.1)", "Adagrad(lr=0.1)"}) {
    Cluster cluster(1, optimizer);
    Gradient tiny;
    tiny.name.set_shard("s");
    tiny.name.set_end(1);
    tiny.dense.resize(static_cast<size_t>(DenseCount(cluster.definition)));
    tiny.ids = {{1, 2, 3}, {}};
    tiny.rows = {std::vector<float>(24, 1e-4f), {}};
    ASSERT_TRUE(cluster.Push(tiny, 0).ok());
    ReferenceModel reference(cluster.definition);
    reference.Apply(tiny);
    for (const float value : reference.Row(0, 2)) {
      EXPECT_TRUE(std::isfinite(value));
    }
    ExpectEqual(cluster, reference, tiny);
  }
}

TEST(ServerStateTest, StalenessDividesTheRate) {
  v1::PsDefinition definition = TestDefinition("SGD(lr=1)");
  definition.set_lr_staleness_modulation(true);
  ServerState state({0, 0});
  const BucketMap map = BucketMap::Even(1);
  v1::PsEntry entry;
  *entry.mutable_definition() = definition;
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  *entry.mutable_map() = ToProto(map);
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  ASSERT_TRUE(Feed(state, InitialPart(definition, map, 0)).ok());
  const auto push = [&](int64_t number, int64_t base) {
    Gradient gradient;
    gradient.name.set_shard("s");
    gradient.name.set_begin(number);
    gradient.name.set_end(number + 1);
    gradient.name.set_base_version(base);
    gradient.dense.assign(static_cast<size_t>(DenseCount(definition)), 1.0f);
    gradient.ids = {{}, {}};
    gradient.rows = {{}, {}};
    const float before = state.dense()[0][0];
    EXPECT_TRUE(Feed(state, PartOf(gradient, definition, map, 0)).ok());
    return before - state.dense()[0][0];
  };
  EXPECT_NEAR(push(0, 0), 1.0, 1e-5);
  EXPECT_NEAR(push(1, 0), 1.0, 1e-5);
  EXPECT_NEAR(push(2, 0), 0.5, 1e-5);
  EXPECT_NEAR(push(3, 0), 1.0 / 3, 1e-5);
  EXPECT_NEAR(push(4, 4), 1.0, 1e-5);
}

// ---- what may be wrong ----

class WrongPushTest : public testing::Test {
 protected:
  WrongPushTest() : cluster_(2, "Adam") {
    std::mt19937_64 random(1);
    Gradient gradient = RandomGradient(cluster_.definition, 0, random);
    part_ = PartOf(gradient, cluster_.definition, cluster_.map, 0);
    before_ = state().Digest();
  }
  ServerState& state() { return *cluster_.states[0]; }
  v1::PsPush& push() { return *part_.entry.mutable_push(); }
  void ExpectRefused(const std::string& why) {
    const absl::Status status = state().Check(part_.entry, part_.payload);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_EQ(state().Digest(), before_);
  }
  void Overwrite(size_t at, double value) {
    const auto v = static_cast<float>(value);
    part_.payload.replace(at, sizeof(v), reinterpret_cast<const char*>(&v),
                          sizeof(v));
  }

  Cluster cluster_;
  EntryBytes part_;
  uint64_t before_ = 0;
};

TEST_F(WrongPushTest, Size) {
  part_.payload.pop_back();
  ExpectRefused("bytes instead of");
}
TEST_F(WrongPushTest, Table) {
  push().mutable_parts(0)->set_table(2);
  ExpectRefused("table number 2 of 2");
}
TEST_F(WrongPushTest, TableTwice) {
  push().mutable_parts(0)->set_table(1);
  ExpectRefused("table odd is there twice");
}
TEST_F(WrongPushTest, Rows) {
  push().mutable_parts(0)->set_rows(std::numeric_limits<uint64_t>::max());
  ExpectRefused("rows");
}
TEST_F(WrongPushTest, Order) {
  const std::string first = part_.payload.substr(0, 8);
  part_.payload.replace(8, 8, first);
  ExpectRefused("table wide: id");
}
TEST_F(WrongPushTest, RowOfAnotherServer) {
  std::mt19937_64 random(1);
  Gradient gradient = RandomGradient(cluster_.definition, 0, random);
  part_ = PartOf(gradient, cluster_.definition, cluster_.map, 1);
  part_.payload =
      PartOf(gradient, cluster_.definition, cluster_.map, 1).payload;
  const absl::Status status = state().Check(part_.entry, part_.payload);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}
TEST_F(WrongPushTest, DenseNaN) {
  const size_t ids = push().parts(0).rows() + push().parts(1).rows();
  Overwrite(ids * 8 + 4, std::nan(""));
  ExpectRefused("gradient of the dense parameters is not finite");
}
TEST_F(WrongPushTest, RowInfinity) {
  Overwrite(part_.payload.size() - 4, std::numeric_limits<double>::infinity());
  ExpectRefused(
      "gradient of table odd is not finite (records 0 to 64 of shard");
}
TEST_F(WrongPushTest, Range) {
  push().set_end(0);
  ExpectRefused("records 0 to 0");
  push().set_begin(-1);
  ExpectRefused("records -1 to 0");
}
TEST_F(WrongPushTest, LearningRate) {
  push().set_learning_rate(-0.1);
  ExpectRefused("learning rate -0.1");
  push().set_learning_rate(std::nan(""));
  ExpectRefused("learning rate");
}
TEST_F(WrongPushTest, AnotherMap) {
  push().set_map_version(0);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(state().Check(part_.entry, part_.payload)));
  // The server will hear of it.
  push().set_map_version(7);
  EXPECT_TRUE(absl::IsUnavailable(state().Check(part_.entry, part_.payload)));
}
TEST_F(WrongPushTest, DataThatWasCutDifferently) {
  ASSERT_TRUE(Feed(state(), part_).ok());
  before_ = state().Digest();
  push().set_begin(32);
  push().set_end(96);
  ExpectRefused("a part is in the model already");
}

TEST(ServerStateOrderTest, ThingsComeInOrder) {
  ServerState state({0, 0});
  const v1::PsDefinition definition = TestDefinition("SGD");
  const BucketMap map = BucketMap::Even(1);
  std::mt19937_64 random(1);
  const Gradient gradient = RandomGradient(definition, 0, random);
  const EntryBytes push = PartOf(gradient, definition, map, 0);
  const EntryBytes values = InitialPart(definition, map, 0);
  EXPECT_TRUE(absl::IsNotFound(Feed(state, push)));
  EXPECT_TRUE(absl::IsNotFound(Feed(state, values)));
  v1::PsEntry entry;
  *entry.mutable_definition() = definition;
  EXPECT_TRUE(Feed(state, {entry, ""}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Feed(state, {entry, ""})));
  EXPECT_TRUE(absl::IsNotFound(Feed(state, values)));
  entry.mutable_definition()->set_optimizer("Adam");
  EXPECT_TRUE(absl::IsInvalidArgument(Feed(state, {entry, ""})));
  *entry.mutable_map() = ToProto(map);
  EXPECT_TRUE(Feed(state, {entry, ""}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Feed(state, {entry, ""})));
  EXPECT_TRUE(absl::IsNotFound(Feed(state, push)));
  EXPECT_TRUE(Feed(state, values).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Feed(state, values)));
  EXPECT_TRUE(Feed(state, push).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Feed(state, {v1::PsEntry(), ""})));
}

TEST(ServerStateOrderTest, WrongDefinitions) {
  const auto refused = [](v1::PsDefinition definition) {
    v1::PsEntry entry;
    *entry.mutable_definition() = std::move(definition);
    const ServerState state({0, 0});
    return std::string(state.Check(entry, "").message());
  };
  v1::PsDefinition good = TestDefinition("SGD");
  v1::PsDefinition bad = good;
  bad.set_optimizer("SGDD");
  EXPECT_THAT(refused(bad), HasSubstr("SGDD"));
  bad = good;
  bad.mutable_tables(0)->set_dim(0);
  EXPECT_THAT(refused(bad), HasSubstr("rows of 0 values"));
  bad = good;
  bad.mutable_tables(0)->set_initializer("x");
  EXPECT_THAT(refused(bad), HasSubstr("table wide: initializer 'x'"));
  bad = good;
  bad.mutable_tables(0)->set_name("odd");
  EXPECT_THAT(refused(bad), HasSubstr("table odd is there twice"));
  EXPECT_EQ(refused(good), "");
}

TEST(ServerStateLimitTest, RowsAboveTheLimitAreRefused) {
  const v1::PsDefinition definition = TestDefinition("SGD");
  const BucketMap map = BucketMap::Even(1);
  const size_t dense =
      static_cast<size_t>(DenseCount(definition)) * sizeof(float);
  ServerState state({0, dense + 2 * EmbeddingTable::empty_bytes() + 150000});
  v1::PsEntry entry;
  *entry.mutable_definition() = definition;
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  *entry.mutable_map() = ToProto(map);
  ASSERT_TRUE(Feed(state, {entry, ""}).ok());
  ASSERT_TRUE(Feed(state, InitialPart(definition, map, 0)).ok());
  std::mt19937_64 random(1);
  absl::Status status;
  int64_t number = 0;
  Gradient last;
  for (; status.ok() && number < 1000; ++number) {
    last = RandomGradient(definition, number, random);
    status = Feed(state, PartOf(last, definition, map, 0));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GT(number, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more rows of table"));
  EXPECT_LE(state.Bytes(), dense + 2 * EmbeddingTable::empty_bytes() + 150000);
  // Rows that are there still learn.
  Gradient known = last;
  known.ids = {{}, {}};
  known.rows = {{}, {}};
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    state.tables()[0]->ForEach(bucket, [&](int64_t id, const char*) {
      known.ids[0] = {id};
      known.rows[0].assign(8, 1.0f);
    });
    if (!known.ids[0].empty()) break;
  }
  EXPECT_TRUE(Feed(state, PartOf(known, definition, map, 0)).ok());
}

}  // namespace
}  // namespace elasticdl::ps
