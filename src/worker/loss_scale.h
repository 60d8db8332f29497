// The factor of the loss in steps that are computed in fp16: small gradients
// would be rounded to zero without it. It is part of the model's state.
#pragma once

#include "absl/types/span.h"

namespace elasticdl::worker {

// All members of a world have the same scale and change it in the same way,
// because they see the same sums of gradients. Within a step it only shrinks:
// an attempt whose gradients overflow is in no model and is repeated with half
// the scale on the same records. The scale at the end of a step takes effect
// with the step; an aborted step does not change it. Thread-compatible.
class LossScale {
 public:
  float value() const { return state_.scale; }

  // The gradients of an attempt overflowed. False: it is as small as it gets,
  // so the scale is not what is wrong.
  bool Shrink();
  // A step was taken with it; after many in a row, it grows.
  void OnStep();

  // For checkpoints and for members that join: kNumbers floats.
  static constexpr int kNumbers = 2;
  absl::Span<char> bytes() {
    return {reinterpret_cast<char*>(&state_), sizeof(state_)};
  }
  absl::Span<const char> bytes() const {
    return {reinterpret_cast<const char*>(&state_), sizeof(state_)};
  }
  // After the bytes were replaced: numbers that no scale has become those of
  // the beginning.
  void Check();

 private:
  struct State {
    float scale = 65536;
    // Steps since it changed. Floats count exactly up to 2^24.
    float steps = 0;
  };
  static_assert(sizeof(State) == kNumbers * sizeof(float));
  State state_;
};

}  // namespace elasticdl::worker
