// Readers of a job's data, and what the master is told of them.
#include "data_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/file.h"
#include "members.h"
#include "support/temp_dir.h"

namespace elasticdl::worker::test {
namespace {

class DataSourcesTest : public testing::Test {
 protected:
  DataSourcesTest() {
    job_.set_minibatch_size(2);
    job_.set_training_data(JoinPath(dir_.path(), "train.csv"));
    EXPECT_TRUE(WriteFileAtomic(job_.training_data(), "x\n1\n2\n3\n").ok());
    model_.feed = [](Records records) -> absl::StatusOr<Batch> {
      Batch batch;
      batch.labels = torch::zeros({static_cast<int64_t>(records.size())});
      return batch;
    };
    // As most models: no reader of their own.
    model_.open_reader = [](const std::string&) { return nullptr; };
    data_ = std::make_unique<DataSources>(job_, model_, Environment::Real(),
                                          events_);
  }
  v1::Task TrainingTask() const {
    v1::Task task;
    task.mutable_range()->set_shard(job_.training_data());
    task.mutable_range()->set_end(3);
    task.mutable_range()->set_block_end(3);
    return task;
  }

  elasticdl::test::TempDir dir_;
  v1::JobSpec job_;
  FaultyModel model_{CountedData()};
  ThreadEventQueue events_;
  std::unique_ptr<DataSources> data_;
};

TEST_F(DataSourcesTest, MinibatchesArriveAsEvents) {
  auto pipeline = data_->MakePipeline(job_.training_data(), Mode::kTraining,
                                      Event::Kind::kTraining);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  (*pipeline)->Add(TrainingTask());
  for (const int64_t records : {2, 1}) {
    const auto event = events_.Pop(absl::Seconds(30));
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind, Event::Kind::kTraining);
    EXPECT_EQ(event->minibatch->Take()->labels.numel(), records);
  }
}

TEST_F(DataSourcesTest, OneMinibatchIsReadAtOnce) {
  const auto batch = data_->ReadOne(TrainingTask());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->labels.numel(), 2);
  EXPECT_TRUE(events_.empty());
}

TEST_F(DataSourcesTest, AnErrorOfTheFirstMinibatchIsTold) {
  model_.feed = [](Records) { return absl::InternalError("boom"); };
  EXPECT_EQ(data_->ReadOne(TrainingTask()).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(DataSourcesTest, MissingDataIsAnError) {
  EXPECT_FALSE(data_
                   ->MakePipeline(JoinPath(dir_.path(), "none.csv"),
                                  Mode::kEvaluation, Event::Kind::kOther)
                   .ok());
  job_.set_data_reader_params("no equals sign");
  EXPECT_TRUE(absl::IsInvalidArgument(data_->ReadOne(TrainingTask()).status()));
}

TEST_F(DataSourcesTest, TheMasterFindsOrdinaryShardsItself) {
  ASSERT_TRUE(data_->ReadOne(TrainingTask()).ok());
  v1::Ready ready;
  ASSERT_TRUE(data_->AddShards(ready).ok());
  EXPECT_FALSE(ready.has_shards());
}

// Only the model can read the training data; the validation data, which is
// opened last, is an ordinary file.
TEST_F(DataSourcesTest, ShardsOfAModelsReaderAreToldWithAllOthers) {
  job_.set_training_data("the model's own");
  job_.set_validation_data(JoinPath(dir_.path(), "train.csv"));
  const auto counting = MakeCountingModel(CountedData());
  model_.open_reader =
      [&](const std::string& origin) -> std::unique_ptr<data::DataReader> {
    if (origin != "the model's own") return nullptr;
    return *counting->OpenReader(origin, {});
  };
  ASSERT_TRUE(data_
                  ->MakePipeline(job_.training_data(), Mode::kTraining,
                                 Event::Kind::kTraining)
                  .ok());
  ASSERT_TRUE(data_
                  ->MakePipeline(job_.validation_data(), Mode::kEvaluation,
                                 Event::Kind::kOther)
                  .ok());
  v1::Ready ready;
  ASSERT_TRUE(data_->AddShards(ready).ok());
  EXPECT_TRUE(ready.has_shards());
  EXPECT_EQ(ready.training_shards_size(), 2);
  ASSERT_EQ(ready.validation_shards_size(), 1);
  EXPECT_EQ(ready.validation_shards(0).end(), 3);
}

}  // namespace
}  // namespace elasticdl::worker::test
