// elasticdl::Embedding, the layer for (very many) sparse ids.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>

namespace elasticdl {

struct EmbeddingOptions {
  explicit EmbeddingOptions(int64_t output_dim) : output_dim_(output_dim) {}

  // Width of a row.
  TORCH_ARG(int64_t, output_dim);
  // Ids are in [0, input_dim). 0: any id. Ids are then hashed to `capacity`
  // rows (two ids may share a row), because all workers need the same fixed
  // list of parameters from the first step on.
  TORCH_ARG(int64_t, input_dim) = 0;
  TORCH_ARG(int64_t, capacity) = 1 << 16;
  // Initial values: "uniform" (in ±initial_scale), "normal" (that deviation) or
  // "zeros".
  TORCH_ARG(std::string, initializer) = "uniform";
  TORCH_ARG(double, initial_scale) = 0.05;
  // "mean", "sum", "sqrtn", or "" for one output row per id.
  TORCH_ARG(std::string, combiner) = "";
  // Id 0 is padding: its row is 0 and combiners ignore it.
  TORCH_ARG(bool, mask_zero) = false;
};

// Ids of ragged rows: row i has ids[offsets[i]] … ids[offsets[i + 1] - 1]; the
// last row has the rest. Both are int64 with one dimension.
struct SparseIds {
  torch::Tensor ids;
  torch::Tensor offsets;
};

// The input of an Embedding: a tensor of ids, or sparse ids. It is one type
// because the call operator of torch's holders cannot select between overloads
// of `forward`.
class EmbeddingInput {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  EmbeddingInput(torch::Tensor ids) : ids_{std::move(ids), {}} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  EmbeddingInput(SparseIds ids) : ids_(std::move(ids)) {}

  bool is_sparse() const { return ids_.offsets.defined(); }
  const SparseIds& sparse() const { return ids_; }
  const torch::Tensor& dense() const { return ids_.ids; }

 private:
  SparseIds ids_;
};

// Thread-compatible, like all modules. Throws on wrong shapes or ids out of
// range.
class EmbeddingImpl : public torch::nn::Module {
 public:
  explicit EmbeddingImpl(EmbeddingOptions options);
  explicit EmbeddingImpl(int64_t output_dim)
      : EmbeddingImpl(EmbeddingOptions(output_dim)) {}

  // Without combiner: ids of any shape (…) to (…, output_dim); negative ids
  // give zeros. With combiner: ids (B, L) or SparseIds to (B, output_dim);
  // negative ids are ignored, and a row without ids gives zeros.
  torch::Tensor forward(const EmbeddingInput& input);

  const EmbeddingOptions& options() const { return options_; }

 private:
  // The table row of each (non-negative) id.
  torch::Tensor Rows(const torch::Tensor& ids) const;
  torch::Tensor Dense(const torch::Tensor& ids);
  torch::Tensor Combine(const SparseIds& sparse);

  const EmbeddingOptions options_;
  torch::Tensor embeddings_;
};
TORCH_MODULE(Embedding);

}  // namespace elasticdl

#include "elasticdl/model/internal/embedding_inl.h"
