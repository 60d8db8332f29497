#include "data_sources.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "elasticdl/common/queue.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

absl::StatusOr<data::DataReader*> DataSources::OpenReader(
    const std::string& origin) {
  std::unique_ptr<data::DataReader>& reader = readers_[origin];
  if (reader == nullptr) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const data::ReaderParams params,
        data::ParseReaderParams(job_.data_reader_params()));
    ELASTICDL_ASSIGN_OR_RETURN(reader, model_.OpenReader(origin, params));
    // One is enough: the master cannot list what only the model can read, and
    // takes the shards of all origins from here then.
    has_own_reader_ = has_own_reader_ || reader != nullptr;
    if (reader == nullptr) {
      ELASTICDL_ASSIGN_OR_RETURN(reader, data::OpenDataReader(origin, params));
    }
  }
  return reader.get();
}

absl::StatusOr<std::unique_ptr<MinibatchSource>> DataSources::MakePipeline(
    const std::string& origin, Mode mode, Event::Kind kind) {
  ELASTICDL_ASSIGN_OR_RETURN(data::DataReader * reader, OpenReader(origin));
  PipelineOptions options;
  options.mode = mode;
  options.minibatch_size = job_.minibatch_size();
  options.recorder = recorder_;
  // A lone worker waits for a whole step of minibatches.
  options.depth = std::max(
      options.depth,
      static_cast<int>(job_.global_batch_size() / job_.minibatch_size()));
  options.depth = std::max(options.depth, 2 * job_.accumulation_steps());
  options.device = device_;
  options.channels_last = job_.memory_format() == "channels_last";
  return environment_.MakePipeline(
      options, model_, *reader,
      [&events = events_, kind](std::shared_ptr<Minibatch> minibatch) {
        Event event;
        event.kind = kind;
        event.minibatch = std::move(minibatch);
        events.Push(std::move(event));
      });
}

absl::StatusOr<Batch> DataSources::ReadOne(const v1::Task& task) {
  ELASTICDL_ASSIGN_OR_RETURN(data::DataReader * reader,
                             OpenReader(job_.training_data()));
  Queue<std::shared_ptr<Minibatch>> made(1);
  PipelineOptions options;
  options.minibatch_size = job_.minibatch_size();
  options.channels_last = job_.memory_format() == "channels_last";
  const std::unique_ptr<MinibatchSource> pipeline = environment_.MakePipeline(
      options, model_, *reader, [&](std::shared_ptr<Minibatch> minibatch) {
        made.Push(std::move(minibatch));
      });
  pipeline->Add(task);
  const std::optional<std::shared_ptr<Minibatch>> minibatch = made.Pop();
  absl::StatusOr<Batch> batch = (*minibatch)->Take();
  pipeline->Stop();
  made.Close();
  return batch;
}

absl::Status DataSources::AddShards(v1::Ready& ready) {
  if (!has_own_reader_) return absl::OkStatus();
  ready.set_has_shards(true);
  const auto add = [&](const std::string& origin,
                       auto* shards) -> absl::Status {
    if (origin.empty()) return absl::OkStatus();
    ELASTICDL_ASSIGN_OR_RETURN(data::DataReader * reader, OpenReader(origin));
    ELASTICDL_ASSIGN_OR_RETURN(const std::vector<data::Shard> made,
                               reader->CreateShards());
    for (const data::Shard& shard : made) {
      v1::LedgerShard& added = *shards->Add();
      added.set_name(shard.name);
      added.set_begin(shard.begin);
      added.set_end(shard.end);
    }
    return absl::OkStatus();
  };
  ELASTICDL_RETURN_IF_ERROR(
      add(job_.training_data(), ready.mutable_training_shards()));
  ELASTICDL_RETURN_IF_ERROR(
      add(job_.validation_data(), ready.mutable_validation_shards()));
  return add(job_.prediction_data(), ready.mutable_prediction_shards());
}

}  // namespace elasticdl::worker
