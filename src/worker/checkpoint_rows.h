// Rows from a checkpoint of a parameter-server job, for jobs without servers:
// evaluation and prediction.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/model/sharding.h"
#include "initial_rows.h"

namespace elasticdl::worker {

// Thread-compatible.
class CheckpointRows : public RowSource {
 public:
  // A row that was never trained has the initial value that follows from
  // `seed`, as on a server. FAILED_PRECONDITION when a table has other rows
  // than the network wants, or none. What is given must outlive this.
  static absl::StatusOr<std::unique_ptr<CheckpointRows>> Create(
      const checkpoint::Loaded& loaded, const std::vector<ShardedTable>& tables,
      uint64_t seed);

  torch::Tensor Rows(size_t table, const torch::Tensor& ids) override;

 private:
  struct Table {
    size_t dim = 0;
    InitialRows initial;
    // id -> its values in the file, at any address.
    std::unordered_map<int64_t, const char*> rows;
  };

  explicit CheckpointRows(std::vector<Table> tables)
      : tables_(std::move(tables)) {}

  const std::vector<Table> tables_;
};

}  // namespace elasticdl::worker
