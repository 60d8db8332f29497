#include "server_rows.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace elasticdl::worker {

torch::Tensor ServerRows::Rows(size_t table, const torch::Tensor& ids) {
  Use use;
  use.table = table;
  use.ids = ids.contiguous();
  use.rows = torch::empty({use.ids.numel(), tables_[table].dim});
  const ps::PullRows pull{
      static_cast<uint32_t>(table),
      absl::MakeConstSpan(use.ids.data_ptr<int64_t>(),
                          static_cast<size_t>(use.ids.numel())),
      use.rows.data_ptr<float>()};
  const absl::StatusOr<int64_t> version =
      client_.Pull(/*values=*/nullptr, absl::MakeConstSpan(&pull, 1));
  if (!version.ok()) {
    status_ = version.status();
    throw std::runtime_error(std::string(status_.message()));
  }
  version_ = version_ < 0 ? *version : std::min(version_, *version);
  torch::Tensor rows = use.rows;
  if (torch::GradMode::is_enabled()) {
    rows.requires_grad_(true);
    uses_.push_back(std::move(use));
  }
  return rows;
}

void ServerRows::Begin() {
  uses_.clear();
  sums_.clear();
  parts_.clear();
  status_ = absl::OkStatus();
  version_ = -1;
}

const std::vector<ps::PushRows>& ServerRows::Gradients() {
  std::map<size_t, std::vector<const Use*>> by_table;
  for (Use& use : uses_) {
    // A part of the network that the loss does not depend on.
    if (!use.rows.grad().defined()) continue;
    use.rows.mutable_grad() = use.rows.grad().contiguous();
    by_table[use.table].push_back(&use);
  }
  sums_.reserve(by_table.size());
  for (const auto& [table, uses] : by_table) Add(table, uses);
  return parts_;
}

void ServerRows::Add(size_t table, const std::vector<const Use*>& uses) {
  ps::PushRows part;
  part.table = static_cast<uint32_t>(table);
  if (uses.size() == 1) {
    const Use& use = *uses[0];
    part.ids = absl::MakeConstSpan(use.ids.data_ptr<int64_t>(),
                                   static_cast<size_t>(use.ids.numel()));
    part.gradients = use.rows.grad().data_ptr<float>();
    parts_.push_back(part);
    return;
  }
  const auto dim = static_cast<size_t>(tables_[table].dim);
  Sum& sum = sums_.emplace_back();
  for (const Use* use : uses) {
    const auto* ids = use->ids.data_ptr<int64_t>();
    sum.ids.insert(sum.ids.end(), ids, ids + use->ids.numel());
  }
  std::sort(sum.ids.begin(), sum.ids.end());
  sum.ids.erase(std::unique(sum.ids.begin(), sum.ids.end()), sum.ids.end());
  sum.gradients.assign(sum.ids.size() * dim, 0);
  for (const Use* use : uses) {
    const auto* ids = use->ids.data_ptr<int64_t>();
    const float* from = use->rows.grad().data_ptr<float>();
    // Both are sorted.
    size_t to = 0;
    for (int64_t i = 0; i < use->ids.numel(); ++i, from += dim) {
      while (sum.ids[to] != ids[i]) ++to;
      for (size_t d = 0; d < dim; ++d) sum.gradients[to * dim + d] += from[d];
    }
  }
  part.ids = sum.ids;
  part.gradients = sum.gradients.data();
  parts_.push_back(part);
}

}  // namespace elasticdl::worker
