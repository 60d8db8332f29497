// Rows for the layers of a network, and their gradients.
#include "server_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace elasticdl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

torch::Tensor Ids(const std::vector<int64_t>& ids) {
  return torch::tensor(ids, torch::kLong);
}

std::vector<float> Floats(const torch::Tensor& tensor) {
  const torch::Tensor whole = tensor.detach().contiguous();
  const auto* data = whole.data_ptr<float>();
  return {data, data + whole.numel()};
}

// Value d of the row of an id is 10 times the id plus d.
class ServerRowsTest : public testing::Test {
 protected:
  absl::Status Fill(absl::Span<const ps::PullRows> pulls) {
    if (!pull_status_.ok()) return pull_status_;
    for (const ps::PullRows& pull : pulls) {
      const auto dim = static_cast<size_t>(tables_[pull.table].dim);
      for (size_t i = 0; i < pull.ids.size(); ++i) {
        pulled_.push_back(pull.ids[i]);
        for (size_t d = 0; d < dim; ++d) {
          pull.rows[i * dim + d] =
              static_cast<float>(10 * pull.ids[i] + static_cast<int64_t>(d));
        }
      }
    }
    return absl::OkStatus();
  }
  // As a pull ahead of the minibatch does.
  void Predict(const std::vector<TableIds>& ids) {
    std::vector<TableRows> room = rows_.MakeRoom(ids);
    for (const TableRows& table : room) {
      const ps::PullRows pull = table.View();
      ASSERT_TRUE(Fill(absl::MakeConstSpan(&pull, 1)).ok());
    }
    pulled_.clear();
    rows_.Begin(std::move(room));
  }

  const std::vector<ShardedTable> tables_ = {{"a", 1, 0, "zeros", -1},
                                             {"b", 2, 0, "zeros", -1}};
  absl::Status pull_status_;
  // Ids that were pulled on request.
  std::vector<int64_t> pulled_;
  ServerRows rows_{
      [this](absl::Span<const ps::PullRows> pulls) { return Fill(pulls); },
      tables_};
};

TEST_F(ServerRowsTest, PullsWhatALayerAsksFor) {
  const torch::Tensor rows = rows_.Rows(1, Ids({3, 5}));
  EXPECT_THAT(Floats(rows), ElementsAre(30, 31, 50, 51));
  EXPECT_TRUE(rows.requires_grad());
  EXPECT_THAT(pulled_, ElementsAre(3, 5));
  EXPECT_FALSE(rows_.all_pulled());
  ASSERT_EQ(rows_.asked().size(), 1u);
  EXPECT_EQ(rows_.asked()[0].table, 1u);
}

TEST_F(ServerRowsTest, WhatWasPredictedIsNotPulledAgain) {
  Predict({{0, Ids({1, 2, 4})}, {1, Ids({7})}});
  EXPECT_THAT(Floats(rows_.Rows(0, Ids({1, 2, 4}))), ElementsAre(10, 20, 40));
  EXPECT_THAT(Floats(rows_.Rows(1, Ids({7}))), ElementsAre(70, 71));
  EXPECT_THAT(pulled_, IsEmpty());
  EXPECT_TRUE(rows_.all_pulled());
}

TEST_F(ServerRowsTest, ALayerThatIsUsedTwiceGetsTheSumOfItsGradients) {
  Predict({{0, Ids({1, 2})}});
  const torch::Tensor once = rows_.Rows(0, Ids({1, 2}));
  const torch::Tensor again = rows_.Rows(0, Ids({1, 2}));
  (once.sum() + 2 * again.sum()).backward();
  const RowGradients gradients = rows_.TakeGradients();
  ASSERT_EQ(gradients.parts.size(), 1u);
  EXPECT_THAT(gradients.parts[0].ids, ElementsAre(1, 2));
  EXPECT_EQ(gradients.parts[0].gradients[0], 3);
  EXPECT_EQ(gradients.parts[0].gradients[1], 3);
}

// One table of two features is one prediction; each layer asks for a part.
TEST_F(ServerRowsTest, PartsOfAPredictionAreAddedUp) {
  Predict({{1, Ids({1, 2, 3, 4})}});
  const torch::Tensor first = rows_.Rows(1, Ids({1, 3}));
  const torch::Tensor second = rows_.Rows(1, Ids({3, 4}));
  EXPECT_THAT(Floats(first), ElementsAre(10, 11, 30, 31));
  EXPECT_THAT(Floats(second), ElementsAre(30, 31, 40, 41));
  EXPECT_THAT(pulled_, IsEmpty());
  (first.sum() + 10 * second.sum()).backward();
  const RowGradients gradients = rows_.TakeGradients();
  ASSERT_EQ(gradients.parts.size(), 1u);
  const ps::PushRows& part = gradients.parts[0];
  EXPECT_EQ(part.table, 1u);
  // Row 2 was used by nobody.
  EXPECT_THAT(part.ids, ElementsAre(1, 3, 4));
  EXPECT_THAT(std::vector<float>(part.gradients, part.gradients + 6),
              ElementsAre(1, 1, 11, 11, 10, 10));
}

TEST_F(ServerRowsTest, ALayerThatAsksForMoreThanPredictedGetsAllOfItAnew) {
  Predict({{0, Ids({1, 2})}});
  EXPECT_THAT(Floats(rows_.Rows(0, Ids({2, 3}))), ElementsAre(20, 30));
  EXPECT_THAT(pulled_, ElementsAre(2, 3));
  EXPECT_FALSE(rows_.all_pulled());
}

TEST_F(ServerRowsTest, RowsThatTheLossDoesNotDependOnAreNotPushed) {
  Predict({{0, Ids({1})}, {1, Ids({7})}});
  const torch::Tensor used = rows_.Rows(0, Ids({1}));
  rows_.Rows(1, Ids({7}));
  used.sum().backward();
  const RowGradients gradients = rows_.TakeGradients();
  ASSERT_EQ(gradients.parts.size(), 1u);
  EXPECT_EQ(gradients.parts[0].table, 0u);
}

TEST_F(ServerRowsTest, EvaluationLeavesNoGradients) {
  const torch::NoGradGuard no_grad;
  Predict({{0, Ids({1, 2})}});
  EXPECT_FALSE(rows_.Rows(0, Ids({1, 2})).requires_grad());
  EXPECT_FALSE(rows_.Rows(0, Ids({1})).requires_grad());
  EXPECT_FALSE(rows_.Rows(0, Ids({8})).requires_grad());
  EXPECT_THAT(rows_.TakeGradients().parts, IsEmpty());
}

TEST_F(ServerRowsTest, TakenGradientsAreForgotten) {
  rows_.Rows(0, Ids({1})).sum().backward();
  EXPECT_EQ(rows_.TakeGradients().parts.size(), 1u);
  EXPECT_THAT(rows_.TakeGradients().parts, IsEmpty());
  EXPECT_THAT(rows_.asked(), IsEmpty());
}

TEST_F(ServerRowsTest, AnErrorIsThrownAndKept) {
  pull_status_ = absl::UnavailableError("server 1 is away");
  EXPECT_THROW(rows_.Rows(0, Ids({1})), std::runtime_error);
  EXPECT_EQ(rows_.status(), pull_status_);
  rows_.Begin();
  EXPECT_TRUE(rows_.status().ok());
}

}  // namespace
}  // namespace elasticdl::worker
