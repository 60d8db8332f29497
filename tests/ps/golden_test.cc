// What the tests of the Python and Go ElasticDL expect of a parameter server,
// where they are right: the same numbers come out here. Each test is one server
// with the parameters "t1" (2 x 3) and "t2" (2 x 2) and the table "t3" of rows
// of two values that start at zero.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "elasticdl/ps/dense_layout.h"
#include "model.h"
#include "server_state.h"

namespace elasticdl::ps {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

class GoldenTest : public testing::Test {
 protected:
  static constexpr size_t kDense = 10;
  static constexpr size_t kDim = 2;

  void Start(const std::string& optimizer) {
    definition_.set_optimizer(optimizer);
    AddDense("t1", 2, 3);
    AddDense("t2", 2, 2);
    auto& table = *definition_.add_tables();
    table.set_name("t3");
    table.set_dim(kDim);
    table.set_initializer("zeros");
    v1::PsEntry entry;
    *entry.mutable_definition() = definition_;
    Feed(entry, "");
    *entry.mutable_map() = ToProto(map_);
    Feed(entry, "");
    entry.mutable_initial_values()->set_map_version(map_.version());
    Feed(entry, Bytes(Sent({1, 2, 3, 4, 5, 6, 1, 2, 1.1f, 2.2f})));
  }

  // A minibatch of one record: all dense gradients are `dense`, the rows of
  // `ids` (ascending) have `rows` in both values.
  void Push(float dense, const std::vector<int64_t>& ids,
            const std::vector<float>& rows, double learning_rate = 0.1,
            bool stage = false) {
    v1::PsEntry entry;
    v1::PsPush& push = *entry.mutable_push();
    push.set_shard("shard");
    push.set_begin(pushes_);
    push.set_end(++pushes_);
    push.set_map_version(map_.version());
    push.set_dense(true);
    push.set_learning_rate(learning_rate);
    push.set_stage(stage);
    v1::PsTablePart& part = *push.add_parts();
    part.set_rows(ids.size());
    std::vector<float> values(kDense, dense);
    for (const float row : rows) values.insert(values.end(), kDim, row);
    Feed(entry, std::string(reinterpret_cast<const char*>(ids.data()),
                            ids.size() * sizeof(int64_t)) +
                    Bytes(values));
  }
  // A minibatch without any gradient: only the step goes on.
  void PushNothing() {
    v1::PsEntry entry;
    v1::PsPush& push = *entry.mutable_push();
    push.set_shard("shard");
    push.set_begin(pushes_);
    push.set_end(++pushes_);
    push.set_map_version(map_.version());
    Feed(entry, "");
  }
  // A version of all that was staged.
  void Commit(int64_t version, double learning_rate = 0.1) {
    v1::PsEntry entry;
    v1::PsCommit& commit = *entry.mutable_commit();
    commit.set_version(version);
    commit.set_map_version(map_.version());
    commit.set_learning_rate(learning_rate);
    for (; committed_ < pushes_; ++committed_) {
      v1::PsRanges& ranges = *commit.add_pushes();
      ranges.set_shard("shard");
      ranges.add_bounds(committed_);
      ranges.add_bounds(committed_ + 1);
    }
    Feed(entry, "");
  }

  void ExpectDense(const std::vector<float>& expected) {
    EXPECT_THAT(state_.dense()[0], Pointwise(FloatNear(1e-5f), Sent(expected)));
  }
  // Both values of a row are the same in these tests.
  void ExpectRow(int64_t id, float expected) {
    std::vector<float> row(kDim);
    state_.tables()[0]->Pull({&id, 1}, row.data());
    EXPECT_THAT(row,
                Pointwise(FloatNear(1e-5f), std::vector<float>(kDim, expected)))
        << "row " << id;
  }

 private:
  void AddDense(const std::string& name, int64_t rows, int64_t columns) {
    auto& dense = *definition_.add_dense();
    dense.set_name(name);
    dense.add_shape(rows);
    dense.add_shape(columns);
  }
  void Feed(const v1::PsEntry& entry, const std::string& payload) {
    const absl::Status checked = state_.Check(entry, payload);
    ASSERT_TRUE(checked.ok()) << checked;
    const absl::Status applied = state_.Apply(entry, payload);
    ASSERT_TRUE(applied.ok()) << applied;
  }
  // In the order of the wire.
  std::vector<float> Sent(const std::vector<float>& values) const {
    std::vector<float> sent;
    for (const DenseSlice& slice : DenseLayout(definition_, map_, 0)) {
      sent.insert(sent.end(), values.begin() + slice.offset,
                  values.begin() + slice.offset + slice.size);
    }
    return sent;
  }
  static std::string Bytes(const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(float));
  }

  v1::PsDefinition definition_;
  const BucketMap map_ = BucketMap::Even(1);
  ServerState state_{{0, 0}};
  int64_t pushes_ = 0;
  int64_t committed_ = 0;
};

TEST_F(GoldenTest, Sgd) {
  Start("SGD(lr=0.1)");
  Push(1, {}, {}, 0.05);
  ExpectDense({0.95f, 1.95f, 2.95f, 3.95f, 4.95f, 5.95f,  //
               0.95f, 1.95f, 1.05f, 2.15f});
  Push(1, {1, 3}, {1, 1});
  ExpectDense({0.85f, 1.85f, 2.85f, 3.85f, 4.85f, 5.85f,  //
               0.85f, 1.85f, 0.95f, 2.05f});
  ExpectRow(1, -0.1f);
  ExpectRow(3, -0.1f);
  // Ids 1, 3, 3 and 5: duplicates come as their sum.
  Push(0, {1, 3, 5}, {1, 2, 1});
  ExpectRow(1, -0.2f);
  ExpectRow(3, -0.3f);
  ExpectRow(5, -0.1f);
}

// Adam's step is that of the server: a row that comes later starts with slots
// of zero and the corrections of that step.
TEST_F(GoldenTest, Adam) {
  Start("Adam(lr=0.1)");
  // The original's test begins after one step.
  PushNothing();
  Push(1, {}, {});
  ExpectDense({0.9255863187f, 1.9255863187f, 2.9255863187f, 3.9255863187f,
               4.9255863187f, 5.9255863187f,  //
               0.9255863187f, 1.9255863187f, 1.0255863187f, 2.1255863187f});
  // It counted a gradient that it refused as a step.
  PushNothing();
  Push(1, {1, 3}, {1, 1});
  ExpectDense({0.8474920307f, 1.8474920307f, 2.8474920307f, 3.8474920307f,
               4.8474920307f, 5.8474920307f,  //
               0.8474920307f, 1.8474920307f, 0.9474920307f, 2.0474920307f});
  ExpectRow(1, -0.058112835f);
  ExpectRow(3, -0.058112835f);
  Push(1, {1, 3, 5}, {1, 1, 1});
  ExpectRow(1, -0.1314178004f);
  ExpectRow(3, -0.1314178004f);
  ExpectRow(5, -0.0545489238f);
}

// The Go server applied dense gradients twice with amsgrad: the second time
// with m and v of the first. While the gradient does not shrink, amsgrad is
// plain Adam.
TEST_F(GoldenTest, AmsgradAppliesAGradientOnce) {
  Start("Adam(lr=0.1,amsgrad=True)");
  PushNothing();
  Push(1, {}, {});
  ExpectDense({0.9255863187f, 1.9255863187f, 2.9255863187f, 3.9255863187f,
               4.9255863187f, 5.9255863187f,  //
               0.9255863187f, 1.9255863187f, 1.0255863187f, 2.1255863187f});
}

// v = 0.9 v + g; the step is v, or g + 0.9 v with Nesterov's momentum.
TEST_F(GoldenTest, Momentum) {
  Start("SGD(lr=0.1,momentum=0.9)");
  Push(1, {7}, {1});
  ExpectRow(7, -0.1f);
  Push(1, {7}, {1});
  ExpectRow(7, -0.29f);
  Push(1, {7}, {1});
  ExpectRow(7, -0.561f);
  ExpectDense({0.439f, 1.439f, 2.439f, 3.439f, 4.439f, 5.439f,  //
               0.439f, 1.439f, 0.539f, 1.639f});
}
TEST_F(GoldenTest, NesterovMomentum) {
  Start("SGD(lr=0.1,momentum=0.9,nesterov=True)");
  Push(1, {7}, {1});
  ExpectRow(7, -0.19f);
  Push(1, {7}, {1});
  ExpectRow(7, -0.461f);
}

// The sum of squares begins at 0 in Go and at 0.1 in Keras: both can be had.
TEST_F(GoldenTest, Adagrad) {
  Start("Adagrad(lr=0.1)");
  Push(2, {7}, {2});
  ExpectRow(7, -0.1f);
  Push(2, {7}, {2});
  ExpectRow(7, -0.1f - 0.1f * 2 / 2.8284271f);
  ExpectDense({0.8292893f, 1.8292893f, 2.8292893f, 3.8292893f, 4.8292893f,
               5.8292893f,  //
               0.8292893f, 1.8292893f, 0.9292893f, 2.0292893f});
}
TEST_F(GoldenTest, AdagradOfKeras) {
  Start("Adagrad(lr=0.1,initial_accumulator_value=0.1)");
  Push(2, {7}, {2});
  // 0.1 · 2 / √4.1
  ExpectRow(7, -0.0987730f);
}

// Two gradients make a version: the mean of both. The original took the sum of
// rows; a row in one of the two gradients has half of it here.
TEST_F(GoldenTest, SynchronousVersionsAreMeans) {
  Start("SGD(lr=0.1)");
  Push(1, {1, 3}, {1, 1}, 0.1, /*stage=*/true);
  Push(4, {2, 3}, {6, 1}, 0.1, /*stage=*/true);
  ExpectDense({1, 2, 3, 4, 5, 6, 1, 2, 1.1f, 2.2f});
  Commit(1);
  ExpectDense({0.75f, 1.75f, 2.75f, 3.75f, 4.75f, 5.75f,  //
               0.75f, 1.75f, 0.85f, 1.95f});
  ExpectRow(1, -0.05f);
  ExpectRow(2, -0.3f);
  ExpectRow(3, -0.1f);
}

}  // namespace
}  // namespace elasticdl::ps
