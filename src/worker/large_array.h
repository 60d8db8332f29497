// Memory of large arrays.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace elasticdl::worker {

// So many float32 on the device, of any value. Large ones on the CPU are
// mappings of their own, with huge pages where the kernel gives them: fewer
// faults, and all of the memory goes back when they do.
torch::Tensor MakeArray(int64_t floats, c10::Device device);

// Gives free memory back to the kernel. After tensors were replaced by views of
// other ones: what they leave behind is too small for what comes next.
void TrimMemory();

}  // namespace elasticdl::worker
