// Buffers on a server: what is pushed for them is their new value, and a
// version of several pushes has the mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server_state.h"

namespace elasticdl::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::PsDefinition Definition() {
  v1::PsDefinition definition;
  definition.set_optimizer("SGD(learning_rate=1)");
  definition.add_dense()->set_name("weight");
  definition.mutable_dense(0)->add_shape(2);
  definition.add_dense()->set_name("running_mean");
  definition.mutable_dense(1)->add_shape(2);
  definition.mutable_dense(1)->set_buffer(true);
  return definition;
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

class BuffersTest : public testing::Test {
 protected:
  BuffersTest() : state_({0, 0}) { Begin({1, 2, 10, 20}); }
  // The model, with these values.
  void Begin(const std::vector<float>& values) {
    v1::PsEntry entry;
    *entry.mutable_definition() = Definition();
    Feed(entry, {});
    const BucketMap map = BucketMap::Even(1);
    v1::PsMap& proto = *entry.mutable_map();
    proto.set_version(map.version());
    proto.set_servers(1);
    for (const int owner : map.owners()) proto.add_owners(owner);
    map_version_ = map.version();
    Feed(entry, {});
    entry.mutable_initial_values()->set_map_version(map_version_);
    Feed(entry, values);
  }
  void Feed(const v1::PsEntry& entry, const std::vector<float>& payload) {
    const std::string bytes = Bytes(payload);
    ASSERT_EQ(state_.Check(entry, bytes), absl::OkStatus());
    ASSERT_EQ(state_.Apply(entry, bytes), absl::OkStatus());
  }
  v1::PsEntry PushOf(int64_t begin, int64_t end, bool stage) const {
    v1::PsEntry entry;
    v1::PsPush& push = *entry.mutable_push();
    push.set_shard("s");
    push.set_begin(begin);
    push.set_end(end);
    push.set_learning_rate(1);
    push.set_map_version(map_version_);
    push.set_dense(true);
    push.set_stage(stage);
    return entry;
  }

  int64_t map_version_ = 0;
  ServerState state_;
};

TEST_F(BuffersTest, APushBringsNewValues) {
  Feed(PushOf(0, 8, false), {0.5, 0.5, 11, 21});
  EXPECT_THAT(state_.dense()[0], ElementsAre(0.5, 1.5, 11, 21));
  Feed(PushOf(8, 16, false), {0, 0, 5, 6});
  EXPECT_THAT(state_.dense()[0], ElementsAre(0.5, 1.5, 5, 6));
}

TEST_F(BuffersTest, AVersionHasTheMeanByRecords) {
  Feed(PushOf(0, 30, true), {1, 0, 8, 4});
  Feed(PushOf(30, 40, true), {0, 1, 16, 8});
  EXPECT_THAT(state_.dense()[0], ElementsAre(1, 2, 10, 20));
  v1::PsEntry entry;
  v1::PsCommit& commit = *entry.mutable_commit();
  commit.set_version(1);
  commit.set_map_version(map_version_);
  for (const auto& [begin, end] : {std::pair(0, 30), std::pair(30, 40)}) {
    v1::PsRanges& ranges = *commit.add_pushes();
    ranges.set_shard("s");
    ranges.add_bounds(begin);
    ranges.add_bounds(end);
  }
  Feed(entry, {});
  EXPECT_THAT(state_.dense()[0], ElementsAre(0.25, 1.75, 10, 5));
}

TEST_F(BuffersTest, ABufferMayBeInfinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  Feed(PushOf(0, 8, false), {0, 0, infinite, 1});
  EXPECT_EQ(state_.dense()[0][2], infinite);
  const std::string bytes = Bytes({infinite, 0, 0, 0});
  EXPECT_THAT(std::string(state_.Check(PushOf(8, 16, false), bytes).message()),
              HasSubstr("not finite"));
}

// Such as a mask: the model must be able to begin with it, and to be restored.
TEST_F(BuffersTest, ABufferMayBeginInfinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  state_ = ServerState({0, 0});
  Begin({1, 2, -infinite, 20});
  EXPECT_EQ(state_.dense()[0][2], -infinite);
}

TEST(BuffersDefinitionTest, BuffersComeLast) {
  v1::PsEntry entry;
  *entry.mutable_definition() = Definition();
  entry.mutable_definition()->mutable_dense()->SwapElements(0, 1);
  EXPECT_THAT(std::string(ServerState({0, 0}).Check(entry, "").message()),
              HasSubstr("weight comes after a buffer"));
}

}  // namespace
}  // namespace elasticdl::ps
