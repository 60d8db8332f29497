// elasticdl::Embedding, the layer for (huge) sparse ids.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>

namespace elasticdl {

struct EmbeddingOptions {
  explicit EmbeddingOptions(int64_t output_dim) : output_dim_(output_dim) {}

  // Width of a row.
  TORCH_ARG(int64_t, output_dim);
  // Ids are in [0, input_dim). 0: any id; then ids are hashed into `capacity`
  // rows (two ids may share one), because all workers need one fixed list of
  // parameters from the first step.
  TORCH_ARG(int64_t, input_dim) = 0;
  TORCH_ARG(int64_t, capacity) = 1 << 16;
  // Initial values: "uniform" (in ±initial_scale), "normal" (that deviation) or
  // "zeros".
  TORCH_ARG(std::string, initializer) = "uniform";
  TORCH_ARG(double, initial_scale) = 0.05;
  // "mean", "sum", "sqrtn", or "" for one output row per id.
  TORCH_ARG(std::string, combiner) = "";
  // Id 0 is padding: its row is 0 and no combiner counts it.
  TORCH_ARG(bool, mask_zero) = false;
};

// Ids of ragged rows: row i has ids[offsets[i]] … ids[offsets[i + 1] - 1], the
// last row the rest. Both int64, one dimension.
struct SparseIds {
  torch::Tensor ids;
  torch::Tensor offsets;
};

// Thread-compatible, as all modules. Throws on wrong shapes or ids out of
// range.
class EmbeddingImpl : public torch::nn::Module {
 public:
  explicit EmbeddingImpl(EmbeddingOptions options);
  explicit EmbeddingImpl(int64_t output_dim)
      : EmbeddingImpl(EmbeddingOptions(output_dim)) {}

  // Without combiner: ids of any shape (…) to (…, output_dim); negative ids
  // give zeros. With combiner: ids (B, L) to (B, output_dim); negative ids are
  // left out.
  torch::Tensor forward(const torch::Tensor& ids);
  // Needs a combiner. Negative ids are left out; a row without ids gives zeros.
  torch::Tensor forward(const SparseIds& sparse);

  const EmbeddingOptions& options() const { return options_; }

 private:
  // Row of the table for each (non-negative) id.
  torch::Tensor Rows(const torch::Tensor& ids) const;
  torch::Tensor Combine(const SparseIds& sparse);

  const EmbeddingOptions options_;
  torch::Tensor embeddings_;
};
TORCH_MODULE(Embedding);

}  // namespace elasticdl

#include "elasticdl/model/internal/embedding_inl.h"
