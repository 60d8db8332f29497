// Inline parts of elasticdl/model/embedding.h, because model files do not link
// our libraries.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "elasticdl/model/embedding.h"
#include "elasticdl/model/internal/initial_values.h"
#include "elasticdl/model/internal/unique_ids.h"

namespace elasticdl {
namespace internal {

// Removes the ids where `keep` is false and adjusts the offsets.
inline SparseIds Prune(const SparseIds& sparse, const torch::Tensor& keep) {
  // before[i]: number of kept ids before position i.
  const torch::Tensor before =
      torch::cat({sparse.ids.new_zeros({1}), keep.cumsum(0)});
  return {sparse.ids.masked_select(keep),
          before.index_select(0, sparse.offsets)};
}

}  // namespace internal

inline EmbeddingImpl::EmbeddingImpl(EmbeddingOptions options)
    : options_(std::move(options)), sharded_(internal::ShardsNewLayers()) {
  const std::string& combiner = options_.combiner();
  TORCH_CHECK_VALUE(combiner.empty() || combiner == "mean" ||
                        combiner == "sum" || combiner == "sqrtn",
                    "Embedding: combiner '", combiner,
                    "' is not mean, sum or sqrtn");
  const int64_t rows =
      options_.input_dim() > 0 ? options_.input_dim() : options_.capacity();
  TORCH_CHECK_VALUE(rows > 0 && options_.output_dim() > 0,
                    "Embedding: sizes must be positive");
  const internal::InitialValues initial(options_.initializer(),
                                        options_.initial_scale());
  if (sharded_) {
    table_.dim = options_.output_dim();
    table_.input_dim = options_.input_dim();
    table_.initializer = initial.ToString();
    return;
  }
  embeddings_ = register_parameter("embeddings",
                                   initial.Make(rows, options_.output_dim()));
}

inline const ShardedTable& EmbeddingImpl::Attach(std::string name,
                                                 size_t number) {
  table_.name = std::move(name);
  number_ = number;
  return table_;
}

inline EmbeddingImpl::Rows EmbeddingImpl::Find(const torch::Tensor& ids) {
  if (sharded_) return Fetch(ids);
  return {embeddings_, options_.input_dim() > 0 ? ids : Hash(ids)};
}

inline EmbeddingImpl::Rows EmbeddingImpl::Fetch(const torch::Tensor& ids) {
  TORCH_CHECK(!table_.name.empty(),
              "Embedding: the layer is not part of the network that "
              "custom_model returned; use register_module");
  TORCH_CHECK(source_ != nullptr, "Embedding '", table_.name,
              "': there is no source for its rows");
  internal::UniqueIds unique = internal::Unique(ids);
  const int64_t count = unique.ids.size(0);
  if (count == 0) {
    // Nothing to ask for, but backward needs something to end at.
    return {torch::zeros({1, table_.dim})
                .requires_grad_(torch::GradMode::is_enabled()),
            std::move(unique.positions)};
  }
  const int64_t largest = unique.ids[count - 1].item<int64_t>();
  TORCH_CHECK_INDEX(options_.input_dim() <= 0 || largest < options_.input_dim(),
                    "Embedding '", table_.name, "': id ", largest,
                    " is not less than input_dim, ", options_.input_dim());
  torch::Tensor table = source_->Rows(number_, unique.ids);
  TORCH_CHECK(table.defined() && table.scalar_type() == torch::kFloat &&
                  table.sizes() == torch::IntArrayRef({count, table_.dim}),
              "Embedding '", table_.name, "': wrong rows for ", count, " ids");
  return {std::move(table), std::move(unique.positions)};
}

inline torch::Tensor EmbeddingImpl::Hash(const torch::Tensor& ids) const {
  // Two rounds of multiply and fold (int64 wraps around), so that consecutive
  // ids are spread over the rows; the mask makes the result non-negative.
  constexpr int64_t kFirst = -7046029254386353131;
  constexpr int64_t kSecond = -4658895280553007687;
  torch::Tensor hash = ids.mul(kFirst);
  hash = hash.bitwise_xor(hash.__rshift__(32)).mul(kSecond);
  return hash.__rshift__(20)
      .bitwise_and(0xFFFFFFFFFFF)
      .remainder(options_.capacity());
}

inline torch::Tensor EmbeddingImpl::forward(const EmbeddingInput& input) {
  const bool combines = !options_.combiner().empty();
  if (input.is_sparse()) {
    TORCH_CHECK_VALUE(combines, "Embedding of SparseIds needs a combiner");
    return Combine(
        {input.sparse().ids.to(torch::kLong), input.sparse().offsets});
  }
  const torch::Tensor ids = input.dense().to(torch::kLong);
  if (!combines) return Dense(ids);
  TORCH_CHECK_VALUE(ids.dim() == 2, "Embedding with a combiner needs ids of ",
                    "shape (B, L) or SparseIds, not ", ids.dim(),
                    " dimensions");
  return Combine({ids.reshape({-1}),
                  torch::arange(ids.size(0), ids.options()) * ids.size(1)});
}

inline torch::Tensor EmbeddingImpl::Dense(const torch::Tensor& ids) {
  const torch::Tensor keep = ids.ge(options_.mask_zero() ? 1 : 0);
  if (keep.all().item<bool>()) {
    const Rows rows = Find(ids);
    return torch::embedding(rows.table, rows.positions);
  }
  const Rows rows = Find(ids.masked_select(keep));
  const torch::Tensor kept = torch::embedding(rows.table, rows.positions);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(options_.output_dim());
  return kept.new_zeros({ids.numel(), options_.output_dim()})
      .index_copy(0, keep.reshape({-1}).nonzero().squeeze(1), kept)
      .reshape(shape);
}

inline torch::Tensor EmbeddingImpl::Combine(const SparseIds& sparse) {
  const int64_t least = options_.mask_zero() ? 1 : 0;
  const torch::Tensor keep = sparse.ids.ge(least);
  const SparseIds kept =
      keep.all().item<bool>() ? sparse : internal::Prune(sparse, keep);
  const Rows rows = Find(kept.ids);
  torch::Tensor sums = std::get<0>(
      torch::embedding_bag(rows.table, rows.positions, kept.offsets,
                           /*scale_grad_by_freq=*/false, /*mode=*/0));
  if (options_.combiner() == "sum") return sums;
  const torch::Tensor ends =
      torch::cat({kept.offsets.slice(0, 1),
                  kept.offsets.new_full({kept.offsets.size(0) > 0 ? 1 : 0},
                                        kept.ids.size(0))});
  const torch::Tensor counts =
      (ends - kept.offsets).clamp_min(1).to(sums.scalar_type()).unsqueeze(1);
  return options_.combiner() == "mean" ? sums / counts : sums / counts.sqrt();
}

}  // namespace elasticdl
