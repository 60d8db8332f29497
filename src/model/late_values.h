// Initial values of large parameters, made only if somebody needs them. Most
// workers do not: others give them the model, or it comes from a checkpoint.
//
//   reserved ── uniform_, normal_, fill_, zero_ ──▶ late ── Finish ──▶
//   LateValues
//      │                                             │                  │ Make
//      └────────────── any other use ────────────────┴──▶ made ◀────────┘
//
// reserved  made by torch::empty, memory that nobody has touched
// late      its values are not made, but what makes them is noted, with the
//           state of the random numbers. These are skipped as if they had been
//           used: small tensors, later layers and dropout get the same numbers
//           as ever
// made      an ordinary tensor
//
// An operation that needs values makes them first, so custom_model can do what
// it wants. What it does by pointers is found out by the memory, in the end.
#pragma once

#include <ATen/core/MT19937RNGEngine.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "operation_scope.h"

namespace elasticdl::model {

// One operation that makes values.
struct LateFill {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  // kConstant: the value. kUniform: the limits. kNormal: mean and deviation.
  double a = 0;
  double b = 0;
  // Where the numbers are in the memory of the tensor.
  int64_t begin = 0;
  int64_t count = 0;
  // Random numbers continue from here.
  at::mt19937_data_pod random = {};
};

// The values that the parameters of a network lack. Thread-compatible.
class LateValues {
 public:
  // Of so many parameters.
  size_t size() const { return parameters_.size(); }
  int64_t bytes() const;
  // Makes them, wherever the memory of the parameters is now.
  void Make();

  void Add(torch::Tensor parameter, std::vector<LateFill> fills) {
    parameters_.emplace_back(std::move(parameter), std::move(fills));
  }

 private:
  std::vector<std::pair<torch::Tensor, std::vector<LateFill>>> parameters_;
};

// During its lifetime, values of this thread's tensors of `min_bytes` at least
// may be late. Scopes do not nest.
class LateScope {
 public:
  explicit LateScope(int64_t min_bytes);

  // Ends the scope. Only parameters of `network` remain late, each in memory
  // that nothing else uses. Nothing, if memory of values that are late was
  // touched: the network is not what it should be.
  std::optional<LateValues> Finish(const torch::nn::Module& network);

 private:
  struct Entry {
    c10::Storage storage;
    // Empty: reserved.
    std::vector<LateFill> fills;
    bool made = false;
  };
  bool Handle(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  bool Reserved(torch::jit::Stack* stack, size_t count);
  // Null: an ordinary tensor.
  Entry* Find(const torch::Tensor& tensor);
  // Whether the operation is noted instead of done.
  bool Note(const c10::FunctionSchema& schema,
            torch::ArrayRef<torch::jit::IValue> args);
  void MakeAll(const torch::jit::IValue& value);
  static void Make(Entry& entry);

  const int64_t min_bytes_;
  std::map<const c10::StorageImpl*, Entry> entries_;
  std::optional<OperationScope> operations_;
};

// Takes `count` numbers of 32 bits, for nothing.
void SkipNumbers(at::mt19937_data_pod& random, int64_t count);

}  // namespace elasticdl::model
