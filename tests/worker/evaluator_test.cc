// Evaluation of tasks, minibatch by minibatch, and their reports.
#include "evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/failpoint.h"
#include "members.h"

namespace elasticdl::worker::test {
namespace {

// Counts what is released.
class TestSource : public MinibatchSource {
 public:
  explicit TestSource(int& released) : released_(released) {}
  void Add(v1::Task) override {}
  void Release() override { ++released_; }
  void Stop() override {}

 private:
  int& released_;
};

class EvaluatorTest : public testing::Test {
 protected:
  EvaluatorTest()
      : reports_([this](v1::WorkerMessage message) {
          sent_.push_back(std::move(message));
        }) {
    auto replica = Replica::Create(model_, {1}, /*with_optimizer=*/false);
    EXPECT_TRUE(replica.ok());
    replica_ = *std::move(replica);
    auto metrics = model_.CreateMetrics();
    EXPECT_TRUE(metrics.ok());
    evaluator_ = std::make_unique<Evaluator>(
        Evaluator::Deps{*replica_, reports_}, *std::move(metrics),
        std::make_unique<TestSource>(released_));
  }
  ~EvaluatorTest() override { EXPECT_TRUE(InitFailpoints("").ok()); }

  std::vector<std::shared_ptr<Minibatch>> Minibatches(int64_t task_id,
                                                      int64_t records) {
    v1::Task task;
    task.set_task_id(task_id);
    task.set_type(v1::EVALUATION);
    task.mutable_range()->set_shard("validation");
    task.mutable_range()->set_end(records);
    task.mutable_range()->set_block_end(records);
    return data_.Minibatches(task, 4);
  }

  CountedData data_;
  FaultyModel model_{data_};
  std::vector<v1::WorkerMessage> sent_;
  TaskReports reports_;
  std::unique_ptr<Replica> replica_;
  int released_ = 0;
  std::unique_ptr<Evaluator> evaluator_;
};

TEST_F(EvaluatorTest, ATaskIsReportedWithItsLastMinibatch) {
  const auto minibatches = Minibatches(7, 10);
  ASSERT_EQ(minibatches.size(), 3u);
  ASSERT_TRUE(evaluator_->Evaluate(*minibatches[0]).ok());
  ASSERT_TRUE(evaluator_->Evaluate(*minibatches[1]).ok());
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(evaluator_->Evaluate(*minibatches[2]).ok());
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].task_done().task_id(), 7);
  EXPECT_EQ(sent_[0].task_done().records(), 10);
  ASSERT_EQ(sent_[0].task_done().metrics_size(), 1);
  EXPECT_EQ(sent_[0].task_done().metrics(0).name(), "trained");
  EXPECT_EQ(released_, 3);
}

TEST_F(EvaluatorTest, TheNextTaskBeginsAtZero) {
  for (const int64_t id : {1, 2}) {
    ASSERT_TRUE(evaluator_->Evaluate(*Minibatches(id, 4)[0]).ok());
  }
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].task_done().records(), 4);
}

TEST_F(EvaluatorTest, AnErrorOfTheDataIsAnError) {
  v1::Task task;
  task.mutable_range()->set_end(1);
  Minibatch minibatch(std::make_shared<const v1::Task>(task), 0, 1, {0});
  minibatch.Set(absl::DataLossError("broken"));
  EXPECT_EQ(evaluator_->Evaluate(minibatch), absl::DataLossError("broken"));
  EXPECT_EQ(released_, 1) << "the reader may go on";
  EXPECT_TRUE(sent_.empty());
}

TEST_F(EvaluatorTest, AFailpointFailsIt) {
  ASSERT_TRUE(InitFailpoints("worker.evaluate=error").ok());
  EXPECT_TRUE(absl::IsUnavailable(evaluator_->Evaluate(*Minibatches(1, 4)[0])));
}

TEST_F(EvaluatorTest, ANewMasterHearsOtherTasksAgainButNoEvaluations) {
  v1::Task task;
  for (int64_t id = 1; id <= 10; ++id) {
    task.set_task_id(id);
    task.set_type(v1::PREDICTION);
    reports_.Done(task, 5, {}, 100 * id);
  }
  task.set_type(v1::EVALUATION);
  reports_.Done(task, 5);
  sent_.clear();
  reports_.Repeat();
  ASSERT_EQ(sent_.size(), 8u) << "more than a worker can hold";
  EXPECT_EQ(sent_[0].task_done().task_id(), 3);
  EXPECT_EQ(sent_[7].task_done().output_bytes(), 1000);
}

}  // namespace
}  // namespace elasticdl::worker::test
