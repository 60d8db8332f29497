// Takes AllReduce of host memory through a GPU, as a worker does, so that the
// contract suite tries the device's part of a communicator.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// The other operations are those of `inner`, which must have a device().
absl::StatusOr<std::unique_ptr<Communicator>> StageOnDevice(
    std::unique_ptr<Communicator> inner);

// For this process: that many devices, and when their streams run ("null",
// "side", "all"). Before anything uses CUDA.
void PrepareDevices(int count, const std::string& schedule);

}  // namespace elasticdl::collective
