// Rows of the network's tables, pulled from parameter servers while the network
// computes, and their gradients afterwards.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/model/sharding.h"
#include "elasticdl/ps/client.h"

namespace elasticdl::worker {

// Runs on the training thread.
class ServerRows : public RowSource {
 public:
  ServerRows(ps::Client& client, const std::vector<ShardedTable>& tables)
      : client_(client), tables_(tables) {}

  torch::Tensor Rows(size_t table, const torch::Tensor& ids) override;

  // Forgets what was pulled before.
  void Begin();
  // Why the last forward could not have its rows.
  const absl::Status& status() const { return status_; }
  // The lowest version of a server in any pull since Begin; -1: there was none.
  int64_t version() const { return version_; }

  // After backward: one part per table that has gradients. Valid until Begin.
  const std::vector<ps::PushRows>& Gradients();

 private:
  struct Use {
    size_t table = 0;
    torch::Tensor ids;
    torch::Tensor rows;
  };
  // Sums of several uses of one table.
  struct Sum {
    std::vector<int64_t> ids;
    std::vector<float> gradients;
  };

  void Add(size_t table, const std::vector<const Use*>& uses);

  ps::Client& client_;
  const std::vector<ShardedTable>& tables_;
  std::vector<Use> uses_;
  std::vector<Sum> sums_;
  std::vector<ps::PushRows> parts_;
  absl::Status status_;
  int64_t version_ = -1;
};

}  // namespace elasticdl::worker
