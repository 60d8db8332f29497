// Predictions: to a file, or to the model's processor.
#include "predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "members.h"
#include "support/temp_dir.h"

namespace elasticdl::worker::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class NoSource : public MinibatchSource {
 public:
  void Add(v1::Task) override {}
  void Release() override {}
  void Stop() override {}
};

class FailingProcessor : public model::PredictionProcessor {
 public:
  absl::Status Process(const Outputs&, int64_t worker_id) override {
    return absl::InternalError("processor of worker " +
                               std::to_string(worker_id));
  }
  bool uses_output_dir() const override { return false; }
};

class PredictorTest : public testing::Test {
 protected:
  PredictorTest()
      : reports_([this](v1::WorkerMessage message) {
          sent_.push_back(std::move(message));
        }) {
    auto replica = Replica::Create(model_, {1}, /*with_optimizer=*/false);
    EXPECT_TRUE(replica.ok());
    replica_ = *std::move(replica);
  }
  ~PredictorTest() override { EXPECT_TRUE(InitFailpoints("").ok()); }

  void Make(PredictionOutput output) {
    predictor_ = std::make_unique<Predictor>(
        Predictor::Deps{3, *replica_, reports_}, std::move(output),
        std::make_unique<NoSource>());
  }
  void MakeWithWriter() {
    auto writer = PredictionWriter::Open(dir_.path(), 3);
    ASSERT_TRUE(writer.ok()) << writer.status();
    PredictionOutput output;
    output.writer = *std::move(writer);
    Make(std::move(output));
  }
  std::vector<std::shared_ptr<Minibatch>> Minibatches(int64_t records) {
    v1::Task task;
    task.set_task_id(9);
    task.set_type(v1::PREDICTION);
    task.mutable_range()->set_shard(CountedData::ShardName(0));
    task.mutable_range()->set_end(records);
    task.mutable_range()->set_block_end(records);
    return data_.Minibatches(task, 4);
  }
  std::string File() const {
    const auto text =
        ReadFile(JoinPath(dir_.path(), "predictions-worker-3.csv"));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  CountedData data_;
  FaultyModel model_{data_};
  elasticdl::test::TempDir dir_;
  std::vector<v1::WorkerMessage> sent_;
  TaskReports reports_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Predictor> predictor_;
};

TEST_F(PredictorTest, ATaskReachesTheFileAsAWhole) {
  MakeWithWriter();
  const auto minibatches = Minibatches(6);
  ASSERT_TRUE(predictor_->Predict(*minibatches[0]).ok());
  EXPECT_EQ(File(), "");
  ASSERT_TRUE(predictor_->Predict(*minibatches[1]).ok());
  const std::string text = File();
  EXPECT_THAT(text, StartsWith("shard,record,output_0\nshard-0,0,0\n"));
  EXPECT_THAT(text, HasSubstr("shard-0,5,0\n"));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].task_done().records(), 6);
  EXPECT_EQ(sent_[0].task_done().output_bytes(),
            static_cast<int64_t>(text.size()));
  EXPECT_FALSE(predictor_->ignores_output_dir());
}

// The master cuts off what was not reported.
TEST_F(PredictorTest, AFailureAfterTheFileIsWrittenIsNotReported) {
  MakeWithWriter();
  ASSERT_TRUE(InitFailpoints("worker.predicted=error").ok());
  EXPECT_TRUE(absl::IsUnavailable(predictor_->Predict(*Minibatches(4)[0])));
  EXPECT_NE(File(), "");
  EXPECT_TRUE(sent_.empty());
}

TEST_F(PredictorTest, TheProcessorsErrorIsAnError) {
  PredictionOutput output;
  output.processor = std::make_unique<FailingProcessor>();
  Make(std::move(output));
  EXPECT_TRUE(predictor_->ignores_output_dir());
  EXPECT_EQ(predictor_->Predict(*Minibatches(4)[0]),
            absl::InternalError("processor of worker 3"));
  EXPECT_TRUE(sent_.empty());
}

TEST_F(PredictorTest, AnErrorOfTheDataIsAnError) {
  MakeWithWriter();
  v1::Task task;
  task.mutable_range()->set_end(1);
  Minibatch minibatch(std::make_shared<const v1::Task>(task), 0, 1, {0});
  minibatch.Set(absl::DataLossError("broken"));
  EXPECT_EQ(predictor_->Predict(minibatch), absl::DataLossError("broken"));
}

TEST_F(PredictorTest, OutputsMustHaveARowForEachRecord) {
  auto writer = PredictionWriter::Open(dir_.path(), 4);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      writer->Add("s", {1, 2}, Outputs(torch::zeros({3, 1})))));
  EXPECT_TRUE(absl::IsInvalidArgument(
      writer->Add("s", {1}, Outputs(torch::zeros({})))));
}

TEST_F(PredictorTest, AShardsNameIsQuoted) {
  auto writer = PredictionWriter::Open(dir_.path(), 3);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Add("a,\"b\"", {1}, Outputs(torch::ones({1, 2}))).ok());
  ASSERT_TRUE(writer->Flush().ok());
  EXPECT_EQ(File(), "shard,record,output_0,output_1\n\"a,\"\"b\"\"\",1,1,1\n");
}

}  // namespace
}  // namespace elasticdl::worker::test
