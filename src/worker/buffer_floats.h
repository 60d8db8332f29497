// A network's buffers (the statistics of BatchNorm) as floats, to be sent and
// averaged along with gradients.
#pragma once

#include <torch/types.h>

namespace elasticdl::worker {

// Is it float, double or int64? Others are each worker's own.
bool HasFloats(const torch::Tensor& buffer);
// Writes numel() values times `weight`.
void ToFloats(const torch::Tensor& buffer, double weight, float* out);
// Reads as many, times `factor`; integers are rounded.
void FromFloats(const float* in, double factor, const torch::Tensor& buffer);

}  // namespace elasticdl::worker
