// A network's parameters as one flat array, their gradients as another, on the
// device of the network. The tensors of the network are views of them: an
// optimizer or a collective works on one contiguous range and nothing is
// copied.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace elasticdl::worker {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;
// Makes an array of so many float32.
using ArrayMaker = std::function<torch::Tensor(int64_t floats)>;

// Thread-compatible.
class FlatParameters {
 public:
  // Moves the values of `parameters` (those that require a gradient) into the
  // flat array and makes each tensor a view of it. INVALID_ARGUMENT for a
  // parameter that is not a dense float32 tensor, or on another device than the
  // others. `head` floats lie right before gradients(), for whoever sends them
  // along with something else. The arrays are made by `make`, if it is given.
  static absl::StatusOr<FlatParameters> Adopt(const NamedTensors& parameters,
                                              size_t head = 0,
                                              const ArrayMaker& make = {});

  // The arrays, on the CPU only.
  float* values() { return values_.data_ptr<float>(); }
  float* gradients() { return gradients_.data_ptr<float>() + head_; }
  // The arrays, on any device.
  const torch::Tensor& value_tensor() const { return values_; }
  torch::Tensor gradient_tensor() const { return GradientRange(0, size()); }
  // `count` floats from `begin` on; `before` more in front of them, from the
  // head if `begin` is 0.
  torch::Tensor GradientRange(size_t begin, size_t count,
                              size_t before = 0) const {
    return gradients_.narrow(0, static_cast<int64_t>(head_ + begin - before),
                             static_cast<int64_t>(count + before));
  }
  c10::Device device() const { return values_.device(); }
  size_t head_size() const { return head_; }
  size_t size() const { return static_cast<size_t>(values_.numel()); }

  void ZeroGradients();

  // Where each parameter lies in the arrays.
  struct Slice {
    std::string name;
    std::vector<int64_t> shape;
    size_t offset = 0;
    size_t size = 0;
  };
  const std::vector<Slice>& slices() const { return slices_; }
  // The parameter of each slice.
  const std::vector<torch::Tensor>& tensors() const { return parameters_; }

  // Backward may have replaced a gradient by a tensor of its own (a model that
  // sets .grad): copies it back and re-ties the view. Call before reading
  // gradients().
  void CollectGradients();
  // The same for one parameter.
  void CollectGradient(size_t index);

 private:
  size_t head_ = 0;
  torch::Tensor values_;
  torch::Tensor gradients_;
  std::vector<Slice> slices_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> gradient_views_;
};

}  // namespace elasticdl::worker
