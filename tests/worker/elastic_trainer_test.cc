// Rounds that fail because of others: what their gradients are still good for.
#include "elastic_trainer.h"

#include <gtest/gtest.h>

#include <memory>

#include "layers_model.h"
#include "mirror.h"

namespace elasticdl::worker::test {
namespace {

// Both have done two steps; then the other member of one of them dies.
class BrokenRoundTest : public testing::TestWithParam<bool> {
 protected:
  BrokenRoundTest() {
    broken_.Steps(0, 2);
    whole_.Steps(0, 2);
  }
  Side::Options Options() const {
    Side::Options options;
    // One bucket, or several and BatchNorm.
    options.plain = GetParam();
    return options;
  }
  // Fails at sum `sum` of the third step.
  void Break(int sum, bool leave_data_alone) {
    world_->FailAfter(sum, leave_data_alone);
    const int before = broken_.model.losses;
    const auto round = broken_.trainer->Run({{&batch_, 8}}, {}, 0.1);
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_FALSE(round->world.ok());
    EXPECT_EQ(broken_.model.losses, before + 1);
    EXPECT_EQ(*broken_.replica->StateDigest(), *whole_.replica->StateDigest())
        << "the model is as it was";
  }
  // The third step, in another world, whose steps have another size.
  void StepAgain() {
    broken_.trainer->EnterWorld(std::make_shared<Mirror>(), 6);
    for (Side* side : {&broken_, &whole_}) {
      const auto round = side->trainer->Run({{&batch_, 8}}, {}, 0.1);
      ASSERT_TRUE(round.ok() && round->stepped);
      EXPECT_EQ(round->summary.total_records, 16);
      side->last = *round;
    }
    EXPECT_EQ(broken_.last.summary.mean_loss, whole_.last.summary.mean_loss);
    ExpectClose(broken_, whole_, 1e-6);
  }

  const Batch batch_ = MakeBatch(3, 8);
  std::shared_ptr<Mirror> world_ = std::make_shared<Mirror>();
  Side broken_{kCpu, world_, Options()};
  Side whole_{kCpu, std::make_shared<Mirror>(), Options()};
};

TEST_P(BrokenRoundTest, GradientsThatNoSumHasReachedAreUsed) {
  Break(0, /*leave_data_alone=*/true);
  EXPECT_TRUE(broken_.trainer->keeps_gradients());
  const int before = broken_.model.losses;
  StepAgain();
  EXPECT_EQ(broken_.model.losses, before) << "nothing was computed again";
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  // And the next step is one like any other.
  broken_.Steps(4, 5);
  EXPECT_EQ(broken_.model.losses, before + 1);
}

TEST_P(BrokenRoundTest, TwoWorldsMayBreak) {
  Break(0, /*leave_data_alone=*/true);
  world_ = std::make_shared<Mirror>();
  broken_.trainer->EnterWorld(world_, 12);
  world_->FailAfter(0);
  const int before = broken_.model.losses;
  const auto round = broken_.trainer->Run({{&batch_, 8}}, {}, 0.1);
  ASSERT_TRUE(round.ok() && !round->world.ok());
  StepAgain();
  EXPECT_EQ(broken_.model.losses, before);
}

TEST_P(BrokenRoundTest, GradientsThatASumHasReachedAreComputedAgain) {
  Break(0, /*leave_data_alone=*/false);
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  StepAgain();
}

TEST_P(BrokenRoundTest, OneBucketIsEnough) {
  if (GetParam()) return;
  Break(1, /*leave_data_alone=*/true);
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  StepAgain();
}

TEST_P(BrokenRoundTest, OtherMinibatchesHaveOtherGradients) {
  Break(0, /*leave_data_alone=*/true);
  broken_.trainer->EnterWorld(std::make_shared<Mirror>(), 8);
  const int before = broken_.model.losses;
  broken_.Steps(5, 6);
  whole_.Steps(5, 6);
  EXPECT_EQ(broken_.model.losses, before + 1);
  ExpectClose(broken_, whole_, 1e-6);
}

// With a fixed size of the step, a smaller world gives its members more.
TEST_P(BrokenRoundTest, MoreMinibatchesAreAddedToThoseThatAreThere) {
  Break(0, /*leave_data_alone=*/true);
  broken_.trainer->EnterWorld(std::make_shared<Mirror>(), 6);
  const Batch more = MakeBatch(4, 8);
  const int before = broken_.model.losses;
  for (Side* side : {&broken_, &whole_}) {
    const auto round = side->trainer->Run({{&batch_, 8}, {&more, 8}}, {}, 0.1);
    ASSERT_TRUE(round.ok() && round->stepped);
    EXPECT_EQ(round->summary.total_records, 32);
    side->last = *round;
  }
  EXPECT_EQ(broken_.model.losses, before + 1) << "only the new one";
  EXPECT_NEAR(broken_.last.summary.mean_loss, whole_.last.summary.mean_loss,
              1e-6);
  ExpectClose(broken_, whole_, 1e-6);
}

TEST_P(BrokenRoundTest, BeforeTheEndNothingIsKept) {
  broken_.trainer->ExpectNoMoreRounds();
  world_->FailAfter(0, /*leave_data_alone=*/true);
  const auto round = broken_.trainer->Run({{&batch_, 8}}, {}, 0.1);
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_FALSE(round->world.ok());
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  EXPECT_EQ(*broken_.replica->StateDigest(), *whole_.replica->StateDigest());
}

// Somebody waits with SIGKILL meanwhile.
TEST_P(BrokenRoundTest, BeforeTheEndMinibatchesAreLeftOut) {
  const Batch second = MakeBatch(4, 8);
  const Batch third = MakeBatch(5, 8);
  const int before = broken_.model.losses;
  broken_.trainer->ExpectNoMoreRounds();
  const auto round =
      broken_.trainer->Run({{&batch_, 8}, {&second, 8}, {&third, 8}}, {}, 0.1);
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_TRUE(absl::IsAborted(round->world)) << round->world;
  EXPECT_FALSE(round->stepped);
  EXPECT_EQ(broken_.model.losses, before + 1);
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  EXPECT_EQ(*broken_.replica->StateDigest(), *whole_.replica->StateDigest());
}

TEST_P(BrokenRoundTest, AModelThatWasReplacedHasOtherGradients) {
  Break(0, /*leave_data_alone=*/true);
  broken_.trainer->ForgetGradients();
  EXPECT_FALSE(broken_.trainer->keeps_gradients());
  const int before = broken_.model.losses;
  StepAgain();
  EXPECT_EQ(broken_.model.losses, before + 1);
}

INSTANTIATE_TEST_SUITE_P(All, BrokenRoundTest, testing::Bool(),
                         [](const auto& param) {
                           return param.param ? "OneBucket" : "SeveralBuckets";
                         });

}  // namespace
}  // namespace elasticdl::worker::test
