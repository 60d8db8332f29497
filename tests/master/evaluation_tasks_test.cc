#include "evaluation_tasks.h"

#include <gtest/gtest.h>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

EvaluationTasks MakeEvaluation(int64_t records) {
  std::vector<v1::LedgerShard> shards;
  if (records > 0) shards.push_back(MakeShard("v", 0, records));
  return EvaluationTasks(
      RangeQueue(BlockIndex::Create(shards, 10).value(), {}));
}

TEST(EvaluationTasksTest, EachVersionGetsTheWholeData) {
  EvaluationTasks evaluation = MakeEvaluation(20);
  EXPECT_FALSE(evaluation.running());
  EXPECT_FALSE(evaluation.Pop().has_value());
  EXPECT_FALSE(evaluation.progress().has_value());
  for (const int64_t version : {5, 9}) {
    ASSERT_TRUE(evaluation.Start(version).ok());
    EXPECT_TRUE(evaluation.running());
    EXPECT_EQ(evaluation.version(), version);
    EXPECT_EQ(evaluation.Pop()->size(), 10);
    EXPECT_EQ(evaluation.Pop()->size(), 10);
    EXPECT_FALSE(evaluation.Pop().has_value());
    evaluation.Done(10);
    EXPECT_FALSE(evaluation.CompleteIfDone(/*num_held=*/1));
    evaluation.Done(10);
    EXPECT_TRUE(evaluation.CompleteIfDone(0));
    EXPECT_FALSE(evaluation.CompleteIfDone(0)) << "once";
    EXPECT_FALSE(evaluation.running());
    EXPECT_EQ(evaluation.evaluated_version(), version);
    EXPECT_EQ(evaluation.progress()->done_records, 20);
    EXPECT_TRUE(evaluation.progress()->complete);
  }
}

TEST(EvaluationTasksTest, OneAtATimeAndOnlyWithData) {
  EvaluationTasks evaluation = MakeEvaluation(20);
  ASSERT_TRUE(evaluation.Start(1).ok());
  EXPECT_EQ(evaluation.Start(2).code(), absl::StatusCode::kFailedPrecondition);
  EvaluationTasks without = MakeEvaluation(0);
  EXPECT_EQ(without.Start(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(EvaluationTasksTest, ACancelledOneIsForgotten) {
  EvaluationTasks evaluation = MakeEvaluation(20);
  ASSERT_TRUE(evaluation.Start(1).ok());
  evaluation.Pop();
  evaluation.Cancel();
  EXPECT_FALSE(evaluation.running());
  EXPECT_FALSE(evaluation.CompleteIfDone(0));
  EXPECT_EQ(evaluation.evaluated_version(), -1);
  ASSERT_TRUE(evaluation.Start(1).ok());
  EXPECT_EQ(evaluation.progress()->done_records, 0);
}

TEST(EvaluationTasksTest, AModelThatFellBackIsEvaluatedAgain) {
  EvaluationTasks evaluation = MakeEvaluation(20);
  evaluation.SetEvaluated(8);
  evaluation.FallBack(8);
  EXPECT_EQ(evaluation.evaluated_version(), 8);
  evaluation.FallBack(7);
  EXPECT_EQ(evaluation.evaluated_version(), -1);
}

}  // namespace
}  // namespace elasticdl::master
