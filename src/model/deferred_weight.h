// Weights of torch::nn::Embedding and EmbeddingBag layers without memory. Their
// rows are on parameter servers, without any change to the model file: the
// weight stays a tensor of the same shape, but libtorch passes every operation
// on it to this file.
//
//   ordinary ── first normal_ in a DeferScope ──▶ deferred ── Attach ──▶ table
//      ▲                                             │
//      └──── Make, or an operation on its values ────┘
//
// ordinary  made by torch::empty, which reserves addresses and no memory
// deferred  has no values; remembers by which of normal_, uniform_, fill_ and
//           zero_ they were to be made
// table     torch::embedding and torch::embedding_bag ask a RowSource; all
//           other operations throw
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "elasticdl/model/sharding.h"
#include "operation_scope.h"

namespace elasticdl::model {

// During its lifetime, this thread may create deferred weights: float matrices
// of at least `min_bytes`. Scopes do not nest.
class DeferScope {
 public:
  explicit DeferScope(int64_t min_bytes);

 private:
  const OperationScope scope_;
};

// The shared state of a deferred tensor and of all tensors that share memory
// with it. They own it together. Thread-compatible.
class DeferredWeight {
 public:
  // How all values are made; arguments as in elasticdl::ps::Initializer.
  struct Values {
    enum class Kind { kConstant, kUniform, kNormal };
    Kind kind = Kind::kConstant;
    // kConstant: the value. kUniform: the limits. kNormal: deviation and mean.
    double a = 0;
    double b = 0;
  };

  DeferredWeight(int64_t rows, int64_t dim) : rows_(rows), dim_(dim) {}

  // Null if the tensor is an ordinary one. It is valid as long as the tensor.
  static DeferredWeight* Of(const torch::Tensor& tensor);
  // Makes the tensor an ordinary one, if it is deferred.
  static void Make(const torch::Tensor& tensor);

  bool attached() const { return !table_.name.empty(); }
  // Text for elasticdl::ps::Initializer::Parse.
  std::string initializer() const;
  // A row that was filled after all others, and with what.
  const std::optional<std::pair<int64_t, double>>& filled_row() const {
    return filled_row_;
  }

  // From now on it is table `number` of its network. Forward needs a source.
  void Attach(ShardedTable table, size_t number);
  void SetRowSource(RowSource* source) { source_ = source; }

  // As torch::embedding; `padding` -1: none.
  torch::Tensor Embedding(const torch::Tensor& ids, int64_t padding,
                          bool scale_grad_by_freq) const;
  // Arguments of torch::embedding_bag behind its weight.
  struct BagOptions {
    torch::Tensor offsets;
    bool scale_grad_by_freq = false;
    int64_t mode = 0;
    // Undefined: none.
    torch::Tensor per_sample_weights;
    bool include_last_offset = false;
    // -1: none.
    int64_t padding = -1;
  };
  // The results of torch::embedding_bag; its numbers of rows (max_indices) are
  // those among the rows of this minibatch.
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> Bags(
      const torch::Tensor& ids, const BagOptions& options) const;

  // Remembers how the values of `tensor`, all or one row, are to be made. False
  // if that cannot be remembered.
  bool Record(const torch::Tensor& tensor, const Values& values);
  int64_t rows() const { return rows_; }
  int64_t dim() const { return dim_; }
  const ShardedTable& table() const { return table_; }

 private:
  // Rows of a minibatch, and the row in them of each id.
  struct Found {
    torch::Tensor table;
    torch::Tensor positions;
    // Of the padding; -1: it is not among the ids.
    int64_t padding = -1;
  };
  Found Find(const torch::Tensor& ids, int64_t padding,
             bool padding_has_values) const;
  torch::Tensor Rows(const torch::Tensor& ids) const;
  // All values, as an ordinary tensor.
  const torch::Tensor& Whole();

  const int64_t rows_;
  const int64_t dim_;
  std::optional<Values> values_;
  std::optional<std::pair<int64_t, double>> filled_row_;
  // Defined when one of the tensors was made: the others are views of it.
  torch::Tensor whole_;
  // The name is empty before Attach.
  ShardedTable table_;
  size_t number_ = 0;
  RowSource* source_ = nullptr;
};

}  // namespace elasticdl::model
