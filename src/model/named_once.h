// The tensors of a network by name, each once: a module that is registered
// twice has two names for each of its parameters, but one gradient.
#pragma once

#include <torch/types.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace elasticdl::model {

// Thread-compatible.
class NamedOnce {
 public:
  using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

  void Add(std::string name, torch::Tensor tensor) {
    const bool is_new = seen_.insert(tensor.unsafeGetTensorImpl()).second;
    (is_new ? tensors_ : others_)
        .emplace_back(std::move(name), std::move(tensor));
  }
  // Under the first of its names each.
  Tensors Take() { return std::exchange(tensors_, {}); }
  // Those of Take under their other names.
  Tensors TakeOthers() { return std::exchange(others_, {}); }

 private:
  std::set<const c10::TensorImpl*> seen_;
  Tensors tensors_;
  Tensors others_;
};

}  // namespace elasticdl::model
