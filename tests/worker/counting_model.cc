#include "counting_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/ledger.h"

namespace elasticdl::worker::test {
namespace {

constexpr char kValidation[] = "validation";

class CountingNetwork : public model::Network {
 public:
  explicit CountingNetwork(int64_t ids) {
    weights_ = torch::zeros({ids}).set_requires_grad(true);
    parameters_ = {{"weights", weights_}};
  }
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override {}
  void Eval() override {}
  absl::StatusOr<Outputs> Forward(const Features& features) override {
    return Outputs(weights_.index_select(0, features.tensor()));
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource*) override {}
  absl::StatusOr<std::string> Serialize() const override { return ""; }

 private:
  torch::Tensor weights_;
  Tensors parameters_;
  Tensors buffers_;
  const std::vector<ShardedTable> tables_;
};

class NoReader : public data::DataReader {
 public:
  explicit NoReader(std::vector<data::Shard> shards)
      : shards_(std::move(shards)) {}
  absl::StatusOr<std::vector<data::Shard>> CreateShards() override {
    return shards_;
  }
  absl::StatusOr<data::RecordBatch> Read(const std::string&, int64_t,
                                         int64_t) override {
    return absl::UnimplementedError("records are made, not read");
  }
  const data::Metadata& metadata() const override { return metadata_; }

 private:
  const std::vector<data::Shard> shards_;
  const data::Metadata metadata_;
};

class StopAfter : public Callback {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void on_train_batch_begin(int64_t step) override {
    if (step >= step_) StopTraining("that is enough");
  }

 private:
  const int64_t step_;
};

class CountingModel : public model::Model {
 public:
  CountingModel(CountedData data, int64_t stop_after)
      : data_(std::move(data)), stop_after_(stop_after) {}

  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions&) override {
    return std::make_unique<CountingNetwork>(data_.ids());
  }
  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor&,
                                     const Outputs& outputs) override {
    return -outputs.tensor().mean();
  }
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    // The first gradient of a weight moves it by the learning rate, however
    // large it is.
    return Adagrad(1.0, /*epsilon=*/0);
  }
  absl::StatusOr<Batch> Feed(Records, Mode, const Metadata&) override {
    return absl::UnimplementedError("minibatches come with their tensors");
  }
  absl::StatusOr<model::MetricSet> CreateMetrics() override {
    return model::MetricSet({{"trained", Mean([](const torch::Tensor&,
                                                 const torch::Tensor& output) {
                                return output;
                              })}});
  }
  absl::StatusOr<model::CallbackSet> CreateCallbacks() override {
    if (stop_after_ == 0) return model::CallbackSet({});
    return model::CallbackSet({std::make_shared<StopAfter>(stop_after_)});
  }
  absl::StatusOr<std::unique_ptr<data::DataReader>> OpenReader(
      const std::string& origin, const data::ReaderParams&) override {
    std::vector<data::Shard> shards;
    for (const v1::LedgerShard& shard : origin == kValidation
                                            ? data_.ValidationShards()
                                            : data_.LedgerShards()) {
      shards.push_back({shard.name(), shard.begin(), shard.end()});
    }
    return std::make_unique<NoReader>(std::move(shards));
  }
  absl::StatusOr<std::unique_ptr<model::PredictionProcessor>>
  CreatePredictionProcessor(const std::string&) override {
    return nullptr;
  }

 private:
  const CountedData data_;
  const int64_t stop_after_;
};

v1::LedgerShard MakeShard(const std::string& name, int64_t records) {
  v1::LedgerShard shard;
  shard.set_name(name);
  shard.set_end(records);
  return shard;
}

}  // namespace

int64_t CountedData::records_per_epoch() const {
  return std::accumulate(shards.begin(), shards.end(), int64_t{0});
}

std::string CountedData::ShardName(size_t index) {
  return absl::StrCat("shard-", index);
}

int64_t CountedData::Id(int64_t epoch, const std::string& shard,
                        int64_t record) const {
  // Validation asks for ids of the first epoch.
  if (shard == kValidation) return record;
  int64_t id = epoch * records_per_epoch();
  for (size_t i = 0; ShardName(i) != shard; ++i) id += shards.at(i);
  return id + record;
}

std::vector<v1::LedgerShard> CountedData::LedgerShards() const {
  std::vector<v1::LedgerShard> made;
  for (size_t i = 0; i < shards.size(); ++i) {
    made.push_back(MakeShard(ShardName(i), shards[i]));
  }
  return made;
}

std::vector<v1::LedgerShard> CountedData::ValidationShards() const {
  return {MakeShard(kValidation, validation_records)};
}

std::vector<std::shared_ptr<Minibatch>> CountedData::Minibatches(
    const v1::Task& task, int64_t minibatch_size) const {
  const v1::LedgerRange& range = task.range();
  const std::vector<int64_t> numbers =
      ledger::RecordsOf(task.shuffle_seed(), range.block_begin(),
                        range.block_end(), range.begin(), range.end());
  const auto shared = std::make_shared<const v1::Task>(task);
  std::vector<std::shared_ptr<Minibatch>> minibatches;
  for (int64_t begin = range.begin(); begin < range.end();
       begin += minibatch_size) {
    const int64_t end = std::min(range.end(), begin + minibatch_size);
    const auto first = numbers.begin() + (begin - range.begin());
    std::vector<int64_t> mine(first, first + (end - begin));
    std::vector<int64_t> ids;
    ids.reserve(mine.size());
    for (const int64_t number : mine) {
      ids.push_back(Id(range.epoch(), range.shard(), number));
    }
    auto minibatch =
        std::make_shared<Minibatch>(shared, begin, end, std::move(mine));
    Batch batch;
    batch.features = Features(torch::tensor(ids, torch::kInt64));
    batch.labels = torch::zeros({end - begin});
    minibatch->Set(std::move(batch));
    minibatches.push_back(std::move(minibatch));
  }
  return minibatches;
}

std::unique_ptr<model::Model> MakeCountingModel(const CountedData& data,
                                                int64_t stop_after) {
  return std::make_unique<CountingModel>(data, stop_after);
}

absl::StatusOr<std::vector<bool>> TrainedIds(absl::Span<const float> weights) {
  std::vector<bool> trained(weights.size());
  for (size_t id = 0; id < weights.size(); ++id) {
    // Adagrad's square root may be off by a rounding.
    if (std::abs(weights[id]) < 1e-5F) continue;
    if (std::abs(weights[id] - 1) > 1e-5F) {
      return absl::DataLossError(absl::StrCat("record ", id, " has weight ",
                                              weights[id],
                                              ": it was not trained once"));
    }
    trained[id] = true;
  }
  return trained;
}

}  // namespace elasticdl::worker::test
