#include "loss_scale.h"

#include <cmath>

namespace elasticdl::worker {
namespace {

// Powers of two, so that scaling changes no digit. Larger ones would overflow
// in float32, and smaller ones are no better than 1.
constexpr float kMost = 16777216;     // 2^24
constexpr float kLeast = 1.0F / 256;  // 2^-8
// As PyTorch's GradScaler.
constexpr float kStepsToGrow = 2000;

}  // namespace

bool LossScale::Shrink() {
  if (state_.scale <= kLeast) return false;
  state_.scale /= 2;
  state_.steps = 0;
  return true;
}

void LossScale::OnStep() {
  if (++state_.steps < kStepsToGrow) return;
  state_.steps = 0;
  if (state_.scale < kMost) state_.scale *= 2;
}

void LossScale::Check() {
  int exponent = 0;
  const bool is_scale = state_.scale >= kLeast && state_.scale <= kMost &&
                        std::frexp(state_.scale, &exponent) == 0.5F;
  const bool is_count = state_.steps >= 0 && state_.steps < kStepsToGrow;
  if (!is_scale || !is_count) state_ = State();
}

}  // namespace elasticdl::worker
