#include "server_rows.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace elasticdl::worker {
namespace {

absl::Span<const int64_t> IdSpan(const torch::Tensor& ids) {
  return absl::MakeConstSpan(ids.data_ptr<int64_t>(),
                             static_cast<size_t>(ids.numel()));
}

}  // namespace

ps::PullRows TableRows::View() const {
  return {static_cast<uint32_t>(table), IdSpan(ids), rows.data_ptr<float>()};
}

void ServerRows::Begin(std::vector<TableRows> pulled) {
  pulled_ = std::move(pulled);
  uses_.clear();
  asked_.clear();
  all_pulled_ = true;
  status_ = absl::OkStatus();
}

std::vector<TableRows> ServerRows::MakeRoom(
    const std::vector<TableIds>& wanted) const {
  std::vector<TableRows> room;
  room.reserve(wanted.size());
  for (const TableIds& some : wanted) {
    room.push_back({some.table, some.ids,
                    torch::empty({some.ids.numel(), tables_[some.table].dim})});
  }
  return room;
}

torch::Tensor ServerRows::Rows(size_t table, const torch::Tensor& ids) {
  asked_.push_back({table, ids.contiguous()});
  const torch::Tensor& wanted = asked_.back().ids;
  if (torch::Tensor rows = Find(table, wanted); rows.defined()) return rows;
  all_pulled_ = false;
  TableRows use = MakeRoom({{table, wanted}})[0];
  const ps::PullRows pull = use.View();
  status_ = pull_(absl::MakeConstSpan(&pull, 1));
  if (!status_.ok()) throw std::runtime_error(std::string(status_.message()));
  torch::Tensor rows = use.rows;
  if (torch::GradMode::is_enabled()) {
    rows.requires_grad_(true);
    uses_.push_back(std::move(use));
  }
  return rows;
}

torch::Tensor ServerRows::Find(size_t table, const torch::Tensor& ids) {
  for (TableRows& pulled : pulled_) {
    if (pulled.table != table) continue;
    if (torch::equal(pulled.ids, ids)) {
      // A layer that asks twice gets the same leaf; its gradient is the sum.
      if (torch::GradMode::is_enabled() && !pulled.rows.requires_grad()) {
        pulled.rows.requires_grad_(true);
        uses_.push_back(pulled);
      }
      return pulled.rows;
    }
    // Some of them: those of one of several uses.
    const absl::Span<const int64_t> have = IdSpan(pulled.ids);
    const absl::Span<const int64_t> want = IdSpan(ids);
    if (!std::includes(have.begin(), have.end(), want.begin(), want.end())) {
      return {};
    }
    TableRows use{table, ids, {}};
    use.rows = pulled.rows.detach().index_select(
        0, torch::searchsorted(pulled.ids, ids));
    torch::Tensor rows = use.rows;
    if (torch::GradMode::is_enabled()) {
      rows.requires_grad_(true);
      uses_.push_back(std::move(use));
    }
    return rows;
  }
  return {};
}

RowGradients ServerRows::TakeGradients() {
  RowGradients gradients;
  gradients.uses = std::move(uses_);
  std::map<size_t, std::vector<const TableRows*>> by_table;
  for (TableRows& use : gradients.uses) {
    // A part of the network that the loss does not depend on.
    if (!use.rows.grad().defined()) continue;
    use.rows.mutable_grad() = use.rows.grad().contiguous();
    by_table[use.table].push_back(&use);
  }
  gradients.sums.reserve(by_table.size());
  for (const auto& [table, uses] : by_table) Add(table, uses, gradients);
  Begin();
  return gradients;
}

void ServerRows::Add(size_t table, const std::vector<const TableRows*>& uses,
                     RowGradients& into) const {
  ps::PushRows part;
  part.table = static_cast<uint32_t>(table);
  if (uses.size() == 1) {
    part.ids = IdSpan(uses[0]->ids);
    part.gradients = uses[0]->rows.grad().data_ptr<float>();
    into.parts.push_back(part);
    return;
  }
  const auto dim = static_cast<size_t>(tables_[table].dim);
  RowGradients::Sum& sum = into.sums.emplace_back();
  for (const TableRows* use : uses) {
    const absl::Span<const int64_t> ids = IdSpan(use->ids);
    sum.ids.insert(sum.ids.end(), ids.begin(), ids.end());
  }
  std::sort(sum.ids.begin(), sum.ids.end());
  sum.ids.erase(std::unique(sum.ids.begin(), sum.ids.end()), sum.ids.end());
  sum.gradients.assign(sum.ids.size() * dim, 0);
  for (const TableRows* use : uses) {
    const float* from = use->rows.grad().data_ptr<float>();
    // Both are sorted.
    size_t to = 0;
    for (const int64_t id : IdSpan(use->ids)) {
      while (sum.ids[to] != id) ++to;
      for (size_t d = 0; d < dim; ++d) sum.gradients[to * dim + d] += from[d];
      from += dim;
    }
  }
  part.ids = sum.ids;
  part.gradients = sum.gradients.data();
  into.parts.push_back(part);
}

}  // namespace elasticdl::worker
