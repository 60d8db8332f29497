// Work on a device: turns exceptions of libtorch into statuses with advice, and
// moves tensors to the device.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "elasticdl/model/types.h"

namespace elasticdl::worker {

// Calls f(); an exception becomes INTERNAL: "`what`: …". The message has advice
// for mistakes of users: a tensor on another device, out of memory
// (RESOURCE_EXHAUSTED, IsOutOfDeviceMemory). Errors of the device itself, or of
// its libraries, are marked (IsDeviceFailure).
absl::Status OnDevice(const std::string& what,
                      absl::FunctionRef<absl::Status()> f);

// The device failed, not the model or the data: this process can compute
// nothing there any more, another one may. Survives Annotate.
bool IsDeviceFailure(const absl::Status& status);
bool IsOutOfDeviceMemory(const absl::Status& status);

// Makes this thread's allocations of pinned memory, streams and events belong
// to the device. Nothing on the CPU.
absl::Status UseDevice(c10::Device device);

// Copies of what is not there yet; waits for copies to the CPU.
elasticdl::NamedTensors Moved(const elasticdl::NamedTensors& tensors,
                              c10::Device device);
Batch ToDevice(const Batch& batch, c10::Device device);

}  // namespace elasticdl::worker
