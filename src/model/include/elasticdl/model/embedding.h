// elasticdl::Embedding, the layer for (very many) sparse ids.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "elasticdl/model/sharding.h"

namespace elasticdl {

struct EmbeddingOptions {
  explicit EmbeddingOptions(int64_t output_dim) : output_dim_(output_dim) {}

  // Width of a row.
  TORCH_ARG(int64_t, output_dim);
  // Ids are in [0, input_dim). 0: any id. Without parameter servers, ids are
  // then hashed to `capacity` rows (two ids may share a row), because all
  // workers need the same fixed list of parameters from the first step on.
  TORCH_ARG(int64_t, input_dim) = 0;
  TORCH_ARG(int64_t, capacity) = 1 << 16;
  // Initial values: "uniform" (in ±initial_scale), "normal" or
  // "truncated_normal" (that deviation), "zeros", "ones", "constant(VALUE)",
  // "glorot_uniform", "glorot_normal", "he_uniform", "he_normal"; arguments as
  // in "uniform(0, 1)" and "normal(STDDEV, MEAN)" replace initial_scale.
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
//
// A layer that is constructed in a network with sharded embeddings has no
// parameter: forward gets the rows of the ids that it needs from a RowSource,
// and the gradients are those of the tensors that this returned.
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

  // Whether its rows live on parameter servers. If so, the layer is table
  // `number` of its network from Attach on, and needs a source for forward.
  bool sharded() const { return sharded_; }
  const ShardedTable& Attach(std::string name, size_t number);
  void SetRowSource(RowSource* source) { source_ = source; }

 private:
  // A table and the row in it of each id.
  struct Rows {
    torch::Tensor table;
    torch::Tensor positions;
  };
  // Of ids that are not negative.
  Rows Find(const torch::Tensor& ids);
  Rows Fetch(const torch::Tensor& ids);
  torch::Tensor Hash(const torch::Tensor& ids) const;
  torch::Tensor Dense(const torch::Tensor& ids);
  torch::Tensor Combine(const SparseIds& sparse);

  const EmbeddingOptions options_;
  const bool sharded_;
  // Undefined if sharded.
  torch::Tensor embeddings_;
  // If sharded; the name is empty before Attach.
  ShardedTable table_;
  size_t number_ = 0;
  RowSource* source_ = nullptr;
};
TORCH_MODULE(Embedding);

}  // namespace elasticdl

#include "elasticdl/model/internal/embedding_inl.h"
