// A worker's copy of the model, and its buffers among members.
#include "replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffer_sync.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "members.h"
#include "support/temp_dir.h"

namespace elasticdl::worker::test {
namespace {

using testing::HasSubstr;

// One weight, and buffers of three types.
class SmallNetwork : public model::Network {
 public:
  SmallNetwork(const torch::Tensor& buffer, const torch::Tensor& fixed)
      : parameters_{{"w", torch::ones({2}).set_requires_grad(true)},
                    {"fixed", fixed}},
        buffers_{{"b", buffer}} {}
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override { training = true; }
  void Eval() override { training = false; }
  absl::StatusOr<Outputs> Forward(const Features&) override {
    return Outputs(parameters_[0].second * 2);
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource*) override {}
  absl::StatusOr<std::string> Serialize() const override { return ""; }

  // As new modules of libtorch are.
  bool training = true;

 private:
  const Tensors parameters_;
  const Tensors buffers_;
  const std::vector<ShardedTable> tables_;
};

class SmallModel : public FaultyModel {
 public:
  SmallModel() : FaultyModel(CountedData()) {}
  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions&) override {
    auto made = std::make_unique<SmallNetwork>(make_buffer(), fixed);
    network = made.get();
    return made;
  }
  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                     const Outputs& outputs) override {
    if (scalar_loss) return FaultyModel::Loss(labels, outputs);
    return outputs.tensor();
  }

  std::function<torch::Tensor()> make_buffer = [] { return torch::zeros({2}); };
  torch::Tensor fixed = torch::ones({1});
  bool scalar_loss = true;
  SmallNetwork* network = nullptr;
};

class ReplicaTest : public testing::Test {
 protected:
  void Make() {
    auto replica = Replica::Create(model_, {1}, /*with_optimizer=*/true);
    ASSERT_TRUE(replica.ok()) << replica.status();
    replica_ = *std::move(replica);
  }
  SmallModel model_;
  std::unique_ptr<Replica> replica_;
};

TEST_F(ReplicaTest, ANewReplicaPredictsInEvaluationMode) {
  Make();
  ASSERT_TRUE(replica_->Predict(Features(torch::ones({1}))).ok());
  EXPECT_FALSE(model_.network->training);
}

TEST_F(ReplicaTest, AStepChangesModeWeightsAndStep) {
  Make();
  const uint32_t before = *replica_->StateDigest();
  ASSERT_TRUE(replica_->AddGradients(Batch(), 1).ok());
  EXPECT_TRUE(model_.network->training);
  replica_->ApplyGradients(1.0);
  EXPECT_EQ(replica_->step(), 1);
  EXPECT_NE(*replica_->StateDigest(), before);
  ASSERT_TRUE(replica_->Predict(Features()).ok());
  EXPECT_FALSE(model_.network->training);
}

TEST_F(ReplicaTest, ALossOfSeveralNumbersIsRefused) {
  model_.scalar_loss = false;
  Make();
  EXPECT_THAT(
      std::string(replica_->AddGradients(Batch(), 1).status().message()),
      HasSubstr("one number, not 2"));
}

TEST_F(ReplicaTest, ABufferThatCannotBeSavedIsRefused) {
  model_.make_buffer = [] { return torch::zeros({2}, torch::kComplexFloat); };
  EXPECT_TRUE(absl::IsInvalidArgument(
      Replica::Create(model_, {1}, /*with_optimizer=*/true).status()));
  model_.make_buffer = [] { return torch::zeros({2, 3}).t(); };
  EXPECT_TRUE(absl::IsInvalidArgument(
      Replica::Create(model_, {1}, /*with_optimizer=*/true).status()));
}

TEST_F(ReplicaTest, ARestoredModelIsTheOneThatWasSaved) {
  Make();
  ASSERT_TRUE(replica_->AddGradients(Batch(), 1).ok());
  replica_->ApplyGradients(1.0);
  const auto saved = checkpoint::OwnedSnapshot::Copy(*replica_->View());
  const uint32_t digest = *replica_->StateDigest();
  ASSERT_TRUE(replica_->StartAnew().ok());
  EXPECT_EQ(replica_->step(), 0);
  EXPECT_NE(*replica_->StateDigest(), digest);
  checkpoint::Loaded loaded;
  loaded.version = saved.snapshot.version;
  loaded.variables = saved.snapshot.variables;
  loaded.slots = saved.snapshot.slots;
  // As a checkpoint has them.
  for (auto* tensors : {&loaded.variables, &loaded.slots}) {
    std::sort(tensors->begin(), tensors->end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  loaded.optimizer = saved.snapshot.optimizer;
  ASSERT_EQ(replica_->Restore(loaded), absl::OkStatus());
  EXPECT_EQ(*replica_->StateDigest(), digest);
  // Of another optimizer, or without a slot: weights only.
  loaded.slots.clear();
  ASSERT_TRUE(replica_->Restore(loaded).ok());
  loaded.optimizer = "SGD(lr=1)";
  ASSERT_TRUE(replica_->Restore(loaded).ok());
  // Of another model.
  loaded.variables.clear();
  EXPECT_FALSE(replica_->Restore(loaded).ok());
}

TEST_F(ReplicaTest, ACheckpointIsReadStraightIntoTheModel) {
  Make();
  ASSERT_TRUE(replica_->AddGradients(Batch(), 1).ok());
  replica_->ApplyGradients(1.0);
  const elasticdl::test::TempDir dir;
  const auto path = checkpoint::Save(dir.path(), *replica_->View());
  ASSERT_TRUE(path.ok()) << path.status();
  const uint32_t digest = *replica_->StateDigest();
  // Another model, and slots that are not the initial ones.
  ASSERT_TRUE(replica_->AddGradients(Batch(), 3).ok());
  replica_->ApplyGradients(1.0);
  ASSERT_NE(*replica_->StateDigest(), digest);
  checkpoint::LoadOptions options;
  options.place = [this](checkpoint::Loaded& loaded) {
    return replica_->PlaceCheckpoint(loaded);
  };
  auto loaded = checkpoint::Load(*path, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto is_in_model = [this](const checkpoint::NamedTensor& tensor) {
    for (const absl::Span<char>& part : replica_->State()) {
      if (tensor.bytes.data() >= part.data() &&
          tensor.bytes.data() + tensor.bytes.size() <=
              part.data() + part.size()) {
        return true;
      }
    }
    return false;
  };
  for (const auto* tensors : {&loaded->variables, &loaded->slots}) {
    EXPECT_FALSE(tensors->empty());
    for (const checkpoint::NamedTensor& tensor : *tensors) {
      EXPECT_TRUE(is_in_model(tensor)) << tensor.name;
    }
  }
  ASSERT_EQ(replica_->Restore(*loaded), absl::OkStatus());
  EXPECT_EQ(*replica_->StateDigest(), digest);
  EXPECT_EQ(replica_->step(), 1);
}

TEST_F(ReplicaTest, SlotsThatACheckpointDoesNotHaveAreInitialOnes) {
  Make();
  const uint32_t fresh = *replica_->StateDigest();
  const auto saved = checkpoint::OwnedSnapshot::Copy(*replica_->View());
  ASSERT_TRUE(replica_->AddGradients(Batch(), 1).ok());
  replica_->ApplyGradients(1.0);
  ASSERT_NE(*replica_->StateDigest(), fresh);
  checkpoint::Loaded loaded;
  loaded.variables = saved.snapshot.variables;
  std::sort(loaded.variables.begin(), loaded.variables.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const std::string& optimizer :
       {saved.snapshot.optimizer, std::string("Adam(lr=1)")}) {
    SCOPED_TRACE(optimizer);
    loaded.optimizer = optimizer;
    ASSERT_TRUE(replica_->AddGradients(Batch(), 1).ok());
    replica_->ApplyGradients(1.0);
    ASSERT_TRUE(replica_->Restore(loaded).ok());
    EXPECT_EQ(*replica_->StateDigest(), fresh);
  }
}

// Otherwise it would be in the state of members on a device only.
TEST_F(ReplicaTest, AParameterThatIsNotTrainedIsInTheStateHoweverItIsStored) {
  model_.fixed = torch::arange(6, torch::kFloat32).view({2, 3}).t();
  Make();
  // Two weights and their slots, then six numbers.
  EXPECT_EQ(replica_->NumUnits(), 2u + 6u);
  const std::vector<absl::Span<char>> state = replica_->State();
  ASSERT_EQ(state.back().size(), 6 * sizeof(float));
  std::vector<float> values(6);
  memcpy(values.data(), state.back().data(), state.back().size());
  EXPECT_THAT(values, testing::ElementsAre(0, 3, 1, 4, 2, 5));
  model_.fixed = torch::ones({2, 2}).to_sparse();
  EXPECT_TRUE(absl::IsInvalidArgument(
      Replica::Create(model_, {1}, /*with_optimizer=*/true).status()));
}

TEST_F(ReplicaTest, TheLayoutTellsModelsApart) {
  Make();
  const uint64_t layout = replica_->LayoutDigest();
  model_.make_buffer = [] { return torch::zeros({3}); };
  Make();
  EXPECT_NE(replica_->LayoutDigest(), layout);
}

class BufferSyncTest : public testing::TestWithParam<torch::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(Types, BufferSyncTest,
                         testing::Values(torch::kFloat32, torch::kFloat64,
                                         torch::kInt64));

// Two members with 1 and 3 records, whose buffers became 4 and 8.
TEST_P(BufferSyncTest, TheMembersMeanByRecords) {
  const torch::Tensor a = torch::zeros({2}, GetParam());
  const torch::Tensor b = torch::zeros({2}, GetParam());
  BufferSync first({{"x", a}});
  BufferSync second({{"x", b}});
  ASSERT_EQ(first.size(), 3u);
  a.fill_(4);
  b.fill_(8);
  // Weights are by what a step has as a rule, say 2.
  std::vector<float> sum(3);
  std::vector<float> other(3);
  first.Fill(0.5, sum.data());
  second.Fill(1.5, other.data());
  for (size_t i = 0; i < 3; ++i) sum[i] += other[i];
  for (BufferSync* sync : {&first, &second}) {
    sync->Take(sum.data(), 0.5);
    sync->Commit();
  }
  EXPECT_TRUE(torch::equal(a, torch::full({2}, 7, GetParam())));
  EXPECT_TRUE(torch::equal(a, b));
}

TEST_P(BufferSyncTest, WhatNobodyChangedIsLeftAlone) {
  const torch::Tensor a = torch::full({2}, 5, GetParam());
  BufferSync sync({{"x", a}});
  std::vector<float> sum(3);
  sync.Fill(0.5, sum.data());
  EXPECT_EQ(sum[0], 0);
  sync.Take(sum.data(), 0.1);
  EXPECT_TRUE(torch::equal(a, torch::full({2}, 5, GetParam())));
}

TEST_P(BufferSyncTest, ABrokenStepIsUndone) {
  const torch::Tensor a = torch::full({2}, 5, GetParam());
  BufferSync sync({{"x", a}});
  a.fill_(6);
  sync.RollBack();
  EXPECT_TRUE(torch::equal(a, torch::full({2}, 5, GetParam())));
}

TEST(BufferSyncTypesTest, OtherTypesAreNotKeptLevel) {
  const torch::Tensor a = torch::zeros({2}, torch::kBool);
  EXPECT_EQ(BufferSync({{"x", a}}).size(), 0u);
}

}  // namespace
}  // namespace elasticdl::worker::test
