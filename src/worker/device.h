// Work on a device: exceptions of libtorch become statuses with advice, and
// tensors get there.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "elasticdl/model/types.h"

namespace elasticdl::worker {

// Calls f(); what it throws becomes INTERNAL: "`what`: …". An error that says
// that a tensor is on another device, or that there is no memory left
// (RESOURCE_EXHAUSTED), gets advice.
absl::Status OnDevice(const std::string& what,
                      absl::FunctionRef<absl::Status()> f);

// Makes this thread's allocations of pinned memory, streams and events belong
// to the device. Nothing on the CPU.
void UseDevice(c10::Device device);

// Copies of what is not there yet; waits for copies to the CPU.
elasticdl::NamedTensors Moved(const elasticdl::NamedTensors& tensors,
                              c10::Device device);
Batch ToDevice(const Batch& batch, c10::Device device);

}  // namespace elasticdl::worker
