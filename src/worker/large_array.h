// Memory of large arrays.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace elasticdl::worker {

// An uninitialized array of this many float32 on the device. Large ones on the
// CPU are separate mappings, with huge pages where the kernel allows them:
// fewer page faults, and freeing them returns all of the memory to the kernel.
torch::Tensor MakeArray(int64_t floats, c10::Device device);

// Gives free memory back to the kernel. After tensors were replaced by views of
// other ones: what they leave behind is too small for what comes next.
void TrimMemory();

}  // namespace elasticdl::worker
