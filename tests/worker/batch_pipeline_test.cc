// Reading ahead: order, room, errors of reader and feed, the end.
#include "batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "members.h"

namespace elasticdl::worker::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

// Record n is the text of n. Thread-safe.
class NumberReader : public data::DataReader {
 public:
  absl::StatusOr<std::vector<data::Shard>> CreateShards() override {
    return std::vector<data::Shard>{{"s", 0, 100}};
  }
  absl::StatusOr<data::RecordBatch> Read(const std::string& name, int64_t begin,
                                         int64_t end) override {
    if (name == "missing") return absl::NotFoundError("no shard missing");
    data::RecordBatch batch;
    if (name == "short") --end;
    auto texts = std::make_shared<std::vector<std::string>>();
    for (int64_t i = begin; i < end; ++i) texts->push_back(std::to_string(i));
    for (const std::string& text : *texts) batch.records().push_back(text);
    batch.Hold(texts);
    return batch;
  }
  const data::Metadata& metadata() const override { return metadata_; }

 private:
  const data::Metadata metadata_;
};

class BatchPipelineTest : public testing::Test {
 protected:
  BatchPipelineTest() {
    model_.feed = [](Records records) -> absl::StatusOr<Batch> {
      std::vector<int64_t> numbers;
      for (const absl::string_view record : records) {
        numbers.push_back(std::stoll(std::string(record)));
      }
      Batch batch;
      batch.labels = torch::tensor(numbers, torch::kInt64);
      return batch;
    };
  }
  ~BatchPipelineTest() override { EXPECT_TRUE(InitFailpoints("").ok()); }

  void Start(int depth = 8) {
    PipelineOptions options;
    options.minibatch_size = 4;
    options.depth = depth;
    pipeline_ = std::make_unique<BatchPipeline>(
        options, model_, reader_, [this](std::shared_ptr<Minibatch> minibatch) {
          made_.Push(std::move(minibatch));
        });
  }
  static v1::Task MakeTask(int64_t begin, int64_t end,
                           const std::string& shard = "s", uint64_t seed = 0) {
    v1::Task task;
    task.set_shuffle_seed(seed);
    task.mutable_range()->set_shard(shard);
    task.mutable_range()->set_begin(begin);
    task.mutable_range()->set_end(end);
    task.mutable_range()->set_block_begin(begin);
    task.mutable_range()->set_block_end(end);
    return task;
  }
  std::shared_ptr<Minibatch> Next() {
    auto next = made_.Pop(kLong);
    EXPECT_TRUE(next.has_value());
    return next.value_or(nullptr);
  }
  static std::vector<int64_t> Numbers(Minibatch& minibatch) {
    const auto batch = minibatch.Take();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok()) return {};
    const auto* data = batch->labels.data_ptr<int64_t>();
    return {data, data + batch->labels.numel()};
  }

  FaultyModel model_{CountedData()};
  NumberReader reader_;
  Queue<std::shared_ptr<Minibatch>> made_{std::numeric_limits<size_t>::max()};
  std::unique_ptr<BatchPipeline> pipeline_;
};

TEST_F(BatchPipelineTest, TasksBecomeMinibatchesInOrder) {
  Start();
  pipeline_->Add(MakeTask(0, 6));
  pipeline_->Add(MakeTask(10, 12));
  const auto first = Next();
  EXPECT_FALSE(first->last_of_task());
  EXPECT_THAT(Numbers(*first), ElementsAre(0, 1, 2, 3));
  const auto second = Next();
  EXPECT_TRUE(second->last_of_task());
  EXPECT_EQ(second->records(), 2);
  EXPECT_THAT(Numbers(*second), ElementsAre(4, 5));
  EXPECT_THAT(Numbers(*Next()), ElementsAre(10, 11));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->Take().status()))
      << "tensors are handed out once";
}

TEST_F(BatchPipelineTest, AShuffledTaskHasAllItsRecordsOnce) {
  Start();
  pipeline_->Add(MakeTask(8, 16, "s", 99));
  std::vector<int64_t> all;
  for (int i = 0; i < 2; ++i) {
    const auto minibatch = Next();
    EXPECT_EQ(minibatch->record_numbers(), Numbers(*minibatch));
    for (const int64_t n : minibatch->record_numbers()) all.push_back(n);
  }
  EXPECT_NE(all, (std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST_F(BatchPipelineTest, NoMoreIsReadAheadThanTheConsumerReleases) {
  Start(/*depth=*/2);
  pipeline_->Add(MakeTask(0, 16));
  Next();
  Next();
  EXPECT_FALSE(made_.Pop(absl::Milliseconds(50)).has_value());
  pipeline_->Release();
  EXPECT_THAT(Numbers(*Next()), ElementsAre(8, 9, 10, 11));
}

TEST_F(BatchPipelineTest, AnErrorOfTheReaderComesWithItsFirstMinibatch) {
  Start();
  pipeline_->Add(MakeTask(0, 8, "missing"));
  EXPECT_EQ(Next()->Take().status(), absl::NotFoundError("no shard missing"));
  pipeline_->Add(MakeTask(0, 8, "short"));
  const absl::Status status = Next()->Take().status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("only 7 there"));
}

TEST_F(BatchPipelineTest, AFailpointStandsForTheDisk) {
  ASSERT_TRUE(InitFailpoints("worker.read=error@1x1").ok());
  Start();
  pipeline_->Add(MakeTask(0, 4));
  EXPECT_TRUE(absl::IsUnavailable(Next()->Take().status()));
  pipeline_->Add(MakeTask(4, 8));
  EXPECT_THAT(Numbers(*Next()), ElementsAre(4, 5, 6, 7));
}

TEST_F(BatchPipelineTest, AnErrorOfTheFeedNamesTheShard) {
  model_.feed = [](Records) { return absl::InternalError("feed: boom"); };
  Start();
  pipeline_->Add(MakeTask(0, 4));
  const absl::Status status = Next()->Take().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("boom"), HasSubstr("records of s")));
}

TEST_F(BatchPipelineTest, AnErrorOfOneRecordNamesItsNumberInTheShard) {
  model_.feed = [](Records) -> absl::StatusOr<Batch> {
    absl::Status status = absl::DataLossError("not a number");
    status.SetPayload("elasticdl/bad_record", absl::Cord("2"));
    return status;
  };
  Start();
  pipeline_->Add(MakeTask(20, 24));
  EXPECT_THAT(std::string(Next()->Take().status().message()),
              HasSubstr("record 22 of s"));
}

// The consumer holds minibatches whose feed has not run: it does not wait for
// ever when the pipeline goes.
TEST_F(BatchPipelineTest, WhoWaitsForAMinibatchIsToldOfTheEnd) {
  Mutex mu;
  CondVar changed;
  bool entered = false;
  bool go_on = false;
  model_.feed = [&](Records) -> absl::StatusOr<Batch> {
    MutexLock lock(mu);
    entered = true;
    changed.NotifyAll();
    while (!go_on) changed.Wait(mu);
    return Batch();
  };
  Start();
  pipeline_->Add(MakeTask(0, 8));
  const auto first = Next();
  const auto second = Next();
  {
    MutexLock lock(mu);
    while (!entered) changed.Wait(mu);
  }
  pipeline_->Stop();
  pipeline_->Stop();
  {
    MutexLock lock(mu);
    go_on = true;
    changed.NotifyAll();
  }
  pipeline_.reset();
  EXPECT_TRUE(first->Take().ok());
  // Fed by then, or cancelled; it came to an end.
  const absl::Status status = second->Take().status();
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
}

TEST_F(BatchPipelineTest, StopEndsAReaderThatWaitsForRoom) {
  Start(/*depth=*/1);
  pipeline_->Add(MakeTask(0, 16));
  pipeline_->Add(MakeTask(16, 32));
  Next();
  pipeline_.reset();
  EXPECT_FALSE(made_.Pop(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace elasticdl::worker::test
