// The dense values of a network as servers have them.
#include "server_dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "served.h"

namespace elasticdl::worker::test {
namespace {

using ::testing::ElementsAre;

class ServerDenseTest : public testing::Test {
 protected:
  ServerDense Make(bool copies) {
    replica_ = MakeServedReplica(model_);
    FlatParameters& flat = replica_->parameters();
    std::fill_n(flat.values(), flat.size(), 3.0F);
    std::fill_n(flat.gradients(), flat.size(), 7.0F);
    return ServerDense(*replica_, copies);
  }
  torch::Tensor Buffer() { return replica_->buffers().at(0).second; }

  ServedModel model_;
  std::unique_ptr<Replica> replica_;
};

TEST_F(ServerDenseTest, WithoutOverlapTheArraysAreTheNetworks) {
  ServerDense dense = Make(/*copies=*/false);
  EXPECT_EQ(dense.size(), 2u);
  EXPECT_EQ(dense.pull_target(), replica_->parameters().values());
  EXPECT_EQ(dense.Gradients(), replica_->parameters().gradients());
}

TEST_F(ServerDenseTest, CopiesLeaveTheNetworkAloneUntilTheyAreTaken) {
  ServerDense dense = Make(/*copies=*/true);
  std::fill_n(dense.pull_target(), dense.size(), 5.0F);
  EXPECT_THAT(ValuesOf(*replica_), ElementsAre(3, 3));
  dense.TakePulled();
  EXPECT_THAT(ValuesOf(*replica_), ElementsAre(5, 5));
  const float* gradients = dense.Gradients();
  replica_->parameters().ZeroGradients();
  EXPECT_EQ(gradients[0], 7);
}

// A server sends only what is new: what was pulled before must still be there.
TEST_F(ServerDenseTest, NothingIsPulledYetIsWhatTheNetworkHas) {
  ServerDense dense = Make(/*copies=*/true);
  dense.TakePulled();
  EXPECT_THAT(ValuesOf(*replica_), ElementsAre(3, 3));
}

TEST_F(ServerDenseTest, BuffersFollowTheParameters) {
  model_.with_buffer = true;
  ServerDense dense = Make(/*copies=*/false);
  Buffer().fill_(9);
  EXPECT_THAT(dense.Values(), ElementsAre(3, 3, 9));
  const float* gradients = dense.Gradients();
  EXPECT_THAT(std::vector<float>(gradients, gradients + 3),
              ElementsAre(7, 7, 9));
  dense.SetValues({1, 2, 4});
  EXPECT_THAT(ValuesOf(*replica_), ElementsAre(1, 2));
  EXPECT_EQ(Buffer().item<float>(), 4);

  v1::PsDefinition definition;
  dense.AddTo(definition);
  ASSERT_EQ(definition.dense_size(), 2);
  EXPECT_EQ(definition.dense(0).name(), "weight");
  EXPECT_FALSE(definition.dense(0).buffer());
  EXPECT_EQ(definition.dense(1).name(), "mean");
  EXPECT_TRUE(definition.dense(1).buffer());
}

TEST_F(ServerDenseTest, SlotsAreAsLongAsAllValues) {
  model_.with_buffer = true;
  model_.optimizer = "SGD(lr=1,momentum=0.5)";
  ServerDense dense = Make(/*copies=*/false);
  EXPECT_THAT(dense.Slots(), ElementsAre(ElementsAre(0, 0, 0)));
}

}  // namespace
}  // namespace elasticdl::worker::test
