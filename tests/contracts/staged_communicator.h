// Takes AllReduce of host memory through a GPU, as a worker does, so that the
// contract suite tries the device's part of a communicator.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// The other operations are those of `inner`, which must have a device().
absl::StatusOr<std::unique_ptr<Communicator>> StageOnDevice(
    std::unique_ptr<Communicator> inner);

// For this process and the doubles: that many devices, and when their streams
// run ("null", "side", "all"). Before anything uses CUDA.
void PrepareDevices(int count, const std::string& schedule);

// That this process can use; the error says why there are none.
absl::StatusOr<int> CountDevices();

}  // namespace elasticdl::collective
