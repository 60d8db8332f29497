// Helpers of feed functions without libtorch, parameters and callbacks.
#include "elasticdl/model/preprocessing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "elasticdl/model/callbacks.h"
#include "elasticdl/model/params.h"

namespace elasticdl {
namespace {

TEST(PreprocessingTest, HashingStaysInRangeAndSpreads) {
  const Hashing hashing(10);
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) {
    const int64_t bin = hashing("word" + std::to_string(i));
    EXPECT_GE(bin, 0);
    EXPECT_LT(bin, 10);
    seen.insert(bin);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(hashing(int64_t{42}), hashing("42"));
}

TEST(PreprocessingTest, DiscretizationIsLeftClosed) {
  const Discretization buckets({0, 10});
  EXPECT_EQ(buckets(-1), 0);
  EXPECT_EQ(buckets(0), 1);
  EXPECT_EQ(buckets(9.9), 1);
  EXPECT_EQ(buckets(10), 2);
  EXPECT_EQ(buckets.size(), 3);
}

TEST(PreprocessingTest, IndexLookupPutsUnknownWordsAtTheEnd) {
  const IndexLookup lookup({"a", "b"}, 2);
  EXPECT_EQ(lookup("a"), 0);
  EXPECT_EQ(lookup("b"), 1);
  EXPECT_GE(lookup("zebra"), 2);
  EXPECT_LT(lookup("zebra"), lookup.size());
  EXPECT_EQ(lookup.size(), 4);
}

TEST(PreprocessingTest, LogRoundNormalizerAndOffsets) {
  const LogRound log_round(5, 10.0);
  EXPECT_EQ(log_round(0), 0);
  EXPECT_EQ(log_round(1000), 3);
  EXPECT_EQ(log_round(1e30), 4);
  EXPECT_DOUBLE_EQ(Normalizer(1, 2)(5), 2);
  const ConcatenateWithOffset concatenate({10, 5, 7});
  EXPECT_EQ(concatenate(0, 3), 3);
  EXPECT_EQ(concatenate(2, 3), 18);
  EXPECT_EQ(concatenate.size(), 22);
}

TEST(ParamsTest, TypeOfTheFallbackDecides) {
  const Params params({{"n", "3"}, {"x", "0.5"}, {"b", "True"}, {"s", "hi"}});
  EXPECT_EQ(params.Get("n", 1), 3);
  EXPECT_EQ(params.Get("x", 1.0), 0.5);
  EXPECT_TRUE(params.Get("b", false));
  EXPECT_EQ(params.Get("s", "no"), "hi");
  EXPECT_EQ(params.Get("absent", 7), 7);
  EXPECT_THROW(params.Get("s", 1), std::invalid_argument);
  EXPECT_THROW(params.Get("x", 1), std::invalid_argument);
  EXPECT_THROW(params.Get("s", true), std::invalid_argument);
}

TEST(CallbacksTest, SchedulerSetsTheRate) {
  LearningRateScheduler scheduler([](int64_t step) { return 1.0 / step; });
  EXPECT_FALSE(scheduler.learning_rate());
  scheduler.on_train_batch_begin(4);
  EXPECT_EQ(scheduler.learning_rate(), 0.25);
}

TEST(CallbacksTest, EarlyStoppingWaitsForItsPatience) {
  EarlyStopping::Options options;
  options.metric = "accuracy";
  options.patience = 2;
  EarlyStopping stopping(options);
  stopping.on_evaluation_end(1, {{"accuracy", 0.5}});
  stopping.on_evaluation_end(2, {{"accuracy", 0.4}});
  stopping.on_evaluation_end(3, {{"other", 0.4}});
  EXPECT_FALSE(stopping.stop_requested());
  stopping.on_evaluation_end(4, {{"accuracy", 0.5}});
  EXPECT_TRUE(stopping.stop_requested());
  EXPECT_THAT(stopping.stop_reason(), ::testing::HasSubstr("accuracy"));
}

TEST(CallbacksTest, EarlyStoppingOnALossThatFalls) {
  EarlyStopping::Options options;
  options.metric = "loss";
  options.larger_is_better = false;
  EarlyStopping stopping(options);
  stopping.on_evaluation_end(1, {{"loss", 2}});
  stopping.on_evaluation_end(2, {{"loss", 1}});
  EXPECT_FALSE(stopping.stop_requested());
  stopping.on_evaluation_end(3, {{"loss", 1.5}});
  EXPECT_TRUE(stopping.stop_requested());
}

}  // namespace
}  // namespace elasticdl
