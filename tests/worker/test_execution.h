// The device that tests of the worker run on: the CPU, or a device if there is
// one. So a test program runs on the test device (tests/gpu/device) when it is
// preloaded.
#pragma once

#include <torch/cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "replica.h"

namespace elasticdl::worker::test {

// With ELASTICDL_TEST_GPU a test without a device is skipped, as a whole (the
// code is ctest's).
inline Execution TestExecution() {
  Execution execution;
  if (!torch::cuda::is_available() && getenv("ELASTICDL_TEST_GPU") != nullptr) {
    fputs("skipped: there is no GPU, or libtorch is without CUDA\n", stderr);
    _exit(77);
  }
  if (torch::cuda::is_available()) {
    execution.device = c10::Device(c10::kCUDA, 0);
  }
  return execution;
}

// The trained parameters.
inline std::vector<float> ValuesOf(Replica& replica) {
  const torch::Tensor values = replica.parameters().value_tensor().cpu();
  const auto* begin = values.data_ptr<float>();
  return {begin, begin + values.numel()};
}

}  // namespace elasticdl::worker::test
