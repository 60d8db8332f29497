// Rows of the network's tables for one minibatch, from parameter servers, and
// their gradients afterwards. Prefetched rows are used if a layer requests
// them; others are pulled on request.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/model/sharding.h"
#include "elasticdl/ps/client.h"
#include "id_sources.h"

namespace elasticdl::worker {

// Rows of one table: rows[i] belongs to ids[i].
struct TableRows {
  size_t table = 0;
  torch::Tensor ids;
  torch::Tensor rows;

  // Where Client::Pull puts them.
  ps::PullRows View() const;
};

// Gradients of rows, with the memory that `parts` look at.
struct RowGradients {
  // Sums of several uses of one table.
  struct Sum {
    std::vector<int64_t> ids;
    std::vector<float> gradients;
  };
  std::vector<TableRows> uses;
  std::vector<Sum> sums;
  // One per table that has gradients.
  std::vector<ps::PushRows> parts;
};

// Runs on the training thread.
class ServerRows : public RowSource {
 public:
  // Client::Pull of rows.
  using PullFunction =
      std::function<absl::Status(absl::Span<const ps::PullRows> rows)>;
  ServerRows(PullFunction pull, const std::vector<ShardedTable>& tables)
      : pull_(std::move(pull)), tables_(tables) {}

  torch::Tensor Rows(size_t table, const torch::Tensor& ids) override;

  // A new minibatch, with rows that were pulled for it.
  void Begin(std::vector<TableRows> pulled = {});
  // Rows of these ids, with memory for their values.
  std::vector<TableRows> MakeRoom(const std::vector<TableIds>& wanted) const;
  // Why the last forward could not have its rows.
  const absl::Status& status() const { return status_; }
  // What the layers have asked for, and whether all of it was there.
  const std::vector<TableIds>& asked() const { return asked_; }
  bool all_pulled() const { return all_pulled_; }

  // After backward. Forgets the rows.
  RowGradients TakeGradients();

 private:
  // Undefined if they were not pulled.
  torch::Tensor Find(size_t table, const torch::Tensor& ids);
  void Add(size_t table, const std::vector<const TableRows*>& uses,
           RowGradients& into) const;

  const PullFunction pull_;
  const std::vector<ShardedTable>& tables_;
  std::vector<TableRows> pulled_;
  std::vector<TableRows> uses_;
  std::vector<TableIds> asked_;
  bool all_pulled_ = true;
  absl::Status status_;
};

}  // namespace elasticdl::worker
