// Inline parts of elasticdl/model/embedding.h, because model files do not link
// our libraries.
#pragma once

#include "elasticdl/model/embedding.h"

namespace elasticdl {
namespace internal {

inline torch::Tensor InitialEmbeddings(const EmbeddingOptions& options) {
  const int64_t rows =
      options.input_dim() > 0 ? options.input_dim() : options.capacity();
  TORCH_CHECK_VALUE(rows > 0 && options.output_dim() > 0,
                    "Embedding: sizes must be positive");
  torch::Tensor table = torch::zeros({rows, options.output_dim()});
  const std::string& initializer = options.initializer();
  const double scale = options.initial_scale();
  if (initializer == "uniform") {
    table.uniform_(-scale, scale);
  } else if (initializer == "normal") {
    table.normal_(0.0, scale);
  } else {
    TORCH_CHECK_VALUE(initializer == "zeros", "Embedding: initializer '",
                      initializer, "' is not uniform, normal or zeros");
  }
  return table;
}

// Removes the ids where `keep` is false and adjusts the offsets.
inline SparseIds Prune(const SparseIds& sparse, const torch::Tensor& keep) {
  // before[i]: number of kept ids before position i.
  const torch::Tensor before =
      torch::cat({torch::zeros({1}, torch::kLong), keep.cumsum(0)});
  return {sparse.ids.masked_select(keep),
          before.index_select(0, sparse.offsets)};
}

}  // namespace internal

inline EmbeddingImpl::EmbeddingImpl(EmbeddingOptions options)
    : options_(std::move(options)) {
  const std::string& combiner = options_.combiner();
  TORCH_CHECK_VALUE(combiner.empty() || combiner == "mean" ||
                        combiner == "sum" || combiner == "sqrtn",
                    "Embedding: combiner '", combiner,
                    "' is not mean, sum or sqrtn");
  embeddings_ =
      register_parameter("embeddings", internal::InitialEmbeddings(options_));
}

inline torch::Tensor EmbeddingImpl::Rows(const torch::Tensor& ids) const {
  if (options_.input_dim() > 0) return ids;
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
                  torch::arange(ids.size(0), torch::kLong) * ids.size(1)});
}

inline torch::Tensor EmbeddingImpl::Dense(const torch::Tensor& ids) {
  const torch::Tensor keep = ids.ge(options_.mask_zero() ? 1 : 0);
  if (keep.all().item<bool>()) return torch::embedding(embeddings_, Rows(ids));
  return torch::embedding(embeddings_, Rows(ids.clamp_min(0))) *
         keep.unsqueeze(-1).to(embeddings_.scalar_type());
}

inline torch::Tensor EmbeddingImpl::Combine(const SparseIds& sparse) {
  const int64_t least = options_.mask_zero() ? 1 : 0;
  const torch::Tensor keep = sparse.ids.ge(least);
  const SparseIds kept =
      keep.all().item<bool>() ? sparse : internal::Prune(sparse, keep);
  const torch::Tensor sums = std::get<0>(
      torch::embedding_bag(embeddings_, Rows(kept.ids), kept.offsets,
                           /*scale_grad_by_freq=*/false, /*mode=*/0));
  if (options_.combiner() == "sum") return sums;
  const torch::Tensor ends = torch::cat(
      {kept.offsets.slice(0, 1), torch::full({kept.offsets.size(0) > 0 ? 1 : 0},
                                             kept.ids.size(0), torch::kLong)});
  const torch::Tensor counts =
      (ends - kept.offsets).clamp_min(1).to(sums.scalar_type()).unsqueeze(1);
  return options_.combiner() == "mean" ? sums / counts : sums / counts.sqrt();
}

}  // namespace elasticdl
