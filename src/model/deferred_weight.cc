#include "deferred_weight.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "elasticdl/model/internal/unique_ids.h"

namespace elasticdl::model {

// ---- values ----

std::string DeferredWeight::initializer() const {
  const Values values = values_.value_or(Values());
  // All digits: the same bits come back.
  switch (values.kind) {
    case Values::Kind::kUniform:
      return absl::StrFormat("uniform(%.17g,%.17g)", values.a, values.b);
    case Values::Kind::kNormal:
      return absl::StrFormat("normal(%.17g,%.17g)", values.a, values.b);
    case Values::Kind::kConstant:
      break;
  }
  return absl::StrFormat("constant(%.17g)", values.a);
}

bool DeferredWeight::Record(const torch::Tensor& tensor, const Values& values) {
  if (whole_.defined()) return false;
  if (tensor.numel() == rows_ * dim_) {
    values_ = values;
    filled_row_.reset();
    return true;
  }
  if (values.kind != Values::Kind::kConstant || tensor.dim() != 1 ||
      tensor.numel() != dim_) {
    return false;
  }
  const int64_t row = tensor.storage_offset() / dim_;
  if (filled_row_.has_value() && filled_row_->first != row) return false;
  filled_row_.emplace(row, values.a);
  return true;
}

const torch::Tensor& DeferredWeight::Whole() {
  if (whole_.defined()) return whole_;
  const torch::NoGradGuard no_grad;
  torch::Tensor made = torch::empty({rows_, dim_}, torch::kFloat);
  if (values_.has_value()) {
    switch (values_->kind) {
      case Values::Kind::kConstant:
        made.fill_(values_->a);
        break;
      case Values::Kind::kUniform:
        made.uniform_(values_->a, values_->b);
        break;
      case Values::Kind::kNormal:
        made.normal_(values_->b, values_->a);
        break;
    }
  }
  if (filled_row_.has_value()) {
    made[filled_row_->first].fill_(filled_row_->second);
  }
  whole_ = std::move(made);
  return whole_;
}

void DeferredWeight::Make(const torch::Tensor& tensor) {
  DeferredWeight* weight = Of(tensor);
  if (weight == nullptr) return;
  // Owns the weight, which the tensor is about to let go.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const c10::Storage keep = tensor.storage();
  const torch::NoGradGuard no_grad;
  const torch::Tensor view = weight->Whole().as_strided(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  // What set_data does; the tensor keeps its gradient and whether it has one.
  tensor.unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());
}

// ---- rows ----

void DeferredWeight::Attach(ShardedTable table, size_t number) {
  table_ = std::move(table);
  number_ = number;
}

torch::Tensor DeferredWeight::Rows(const torch::Tensor& ids) const {
  const int64_t count = ids.numel();
  torch::Tensor rows = source_->Rows(number_, ids);
  TORCH_CHECK(rows.defined() && rows.scalar_type() == torch::kFloat &&
                  rows.sizes() == torch::IntArrayRef({count, dim_}),
              "'", table_.name, "': wrong rows for ", count, " ids");
  return rows;
}

DeferredWeight::Found DeferredWeight::Find(const torch::Tensor& ids,
                                           int64_t padding,
                                           bool padding_has_values) const {
  TORCH_CHECK(source_ != nullptr, "'", table_.name,
              "': there is no source for its rows");
  TORCH_CHECK_TYPE(
      ids.scalar_type() == torch::kLong || ids.scalar_type() == torch::kInt,
      "'", table_.name, "': ids must be of type Long or Int, not ",
      ids.scalar_type());
  internal::UniqueIds unique = internal::Unique(ids.to(torch::kLong));
  const int64_t count = unique.ids.size(0);
  const auto* const sorted = unique.ids.data_ptr<int64_t>();
  if (count > 0) {
    const int64_t bad = sorted[0] < 0 ? sorted[0] : sorted[count - 1];
    TORCH_CHECK_INDEX(bad >= 0 && bad < rows_,
                      "index out of range in self: ", bad, " is not in [0, ",
                      rows_, ") of '", table_.name, "'");
  }
  const auto at = [&](int64_t id) {
    const auto* const found = std::lower_bound(sorted, sorted + count, id);
    return id >= 0 && found != sorted + count && *found == id ? found - sorted
                                                              : int64_t{-1};
  };
  Found found;
  found.positions = std::move(unique.positions);
  found.padding = at(padding);
  TORCH_CHECK(table_.zero_row == padding || at(table_.zero_row) < 0, "row ",
              table_.zero_row, " of '", table_.name,
              "' is its padding; it cannot be used otherwise");
  if (found.padding < 0 && count > 0) {
    found.table = Rows(unique.ids);
    return found;
  }
  const int64_t p = found.padding;
  // Without other ids, backward still needs something to end at.
  torch::Tensor rows = torch::zeros({p < 0 ? 1 : 0, dim_})
                           .requires_grad_(torch::GradMode::is_enabled());
  if (count > 1) {
    rows = Rows(
        torch::cat({unique.ids.slice(0, 0, p), unique.ids.slice(0, p + 1)}));
  }
  if (p < 0) {
    found.table = std::move(rows);
    return found;
  }
  torch::Tensor row = torch::zeros({1, dim_});
  if (padding_has_values && table_.zero_row != padding) {
    // Not trained: its gradient must not be asked for.
    const torch::NoGradGuard no_grad;
    row = Rows(unique.ids.slice(0, p, p + 1));
  }
  found.table = torch::cat({rows.slice(0, 0, p), row, rows.slice(0, p)});
  return found;
}

torch::Tensor DeferredWeight::Embedding(const torch::Tensor& ids,
                                        int64_t padding,
                                        bool scale_grad_by_freq) const {
  const Found found = Find(ids, padding, /*padding_has_values=*/true);
  return torch::embedding(found.table, found.positions, found.padding,
                          scale_grad_by_freq);
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor>
DeferredWeight::Bags(const torch::Tensor& ids,
                     const BagOptions& options) const {
  const Found found = Find(ids, options.padding, /*padding_has_values=*/false);
  c10::optional<torch::Tensor> weights;
  if (options.per_sample_weights.defined()) {
    weights = options.per_sample_weights;
  }
  c10::optional<int64_t> padding;
  if (found.padding >= 0) padding = found.padding;
  return torch::embedding_bag(
      found.table, found.positions, options.offsets.to(torch::kLong),
      options.scale_grad_by_freq, options.mode, /*sparse=*/false, weights,
      options.include_last_offset, padding);
}

}  // namespace elasticdl::model
