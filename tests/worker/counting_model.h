// A model whose weights say which records were trained, and how often: record
// `id` moves weight `id` from 0 to exactly 1 when it is trained once, whatever
// the size of the step; a second time moves it to between 1 and 2. So a model
// can be compared with the ledger that belongs to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/model/loader.h"
#include "elasticdl/v1/master.pb.h"
#include "minibatch.h"

namespace elasticdl::worker::test {

// How the records of a job are numbered.
struct CountedData {
  // Of each epoch, in shards of this many.
  std::vector<int64_t> shards = {40, 24};
  int64_t epochs = 2;
  int64_t validation_records = 12;

  int64_t records_per_epoch() const;
  int64_t ids() const { return records_per_epoch() * epochs; }
  static std::string ShardName(size_t index);
  // The id of a record in an epoch.
  int64_t Id(int64_t epoch, const std::string& shard, int64_t record) const;
  std::vector<v1::LedgerShard> LedgerShards() const;
  std::vector<v1::LedgerShard> ValidationShards() const;
  // The minibatches of a task, with their tensors.
  std::vector<std::shared_ptr<Minibatch>> Minibatches(
      const v1::Task& task, int64_t minibatch_size) const;
};

// Thread-safe. `stop_after` > 0: a callback ends the training after that step.
std::unique_ptr<model::Model> MakeCountingModel(const CountedData& data,
                                                int64_t stop_after = 0);

// The ids that were trained, or an error that names one that was trained more
// than once.
absl::StatusOr<std::vector<bool>> TrainedIds(absl::Span<const float> weights);

}  // namespace elasticdl::worker::test
