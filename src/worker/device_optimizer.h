// The optimizers of src/optim as a few tensor operations over flat arrays, for
// devices that its kernels cannot reach.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "elasticdl/optim.h"

namespace elasticdl::worker {

// The same as optim::Optimizer::Apply with tensors of one dimension and equal
// sizes on any device, up to rounding: a sum of products may be rounded twice
// here. Enqueues the work and returns; `gradients` are left undefined.
void ApplyWithTensors(const optim::Optimizer& optimizer,
                      const torch::Tensor& values,
                      const torch::Tensor& gradients,
                      const std::vector<torch::Tensor>& slots,
                      double learning_rate, int64_t step);

// As ClipByGlobalNorm (gradient_clip.h), without a wait for the device.
void ClipTensorByNorm(double most, const torch::Tensor& gradients);

}  // namespace elasticdl::worker
