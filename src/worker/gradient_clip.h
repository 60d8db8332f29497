// Clipping of gradients by their global norm: the optimizer's argument
// global_clipnorm, as in Keras.
#pragma once

#include <cstddef>
#include <string>

#include "absl/types/span.h"

namespace elasticdl::worker {

// Of an optimizer's spec; 0 = gradients are not clipped.
double GlobalClipNorm(const std::string& optimizer_spec);

// Scales the arrays so that the norm of all of them together is at most `most`.
// The same arrays give the same bits.
void ClipByGlobalNorm(double most, absl::Span<const absl::Span<float>> arrays);

}  // namespace elasticdl::worker
