// Which device a worker computes on.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"

namespace elasticdl::worker {

struct DeviceWish {
  // auto: a GPU that no other worker uses, or the CPU if there are no GPUs;
  // cpu; cuda: a GPU that no other worker uses; cuda:N: GPU N, if no other
  // worker uses it.
  std::string device = "auto";
  // Share a GPU if there is none left.
  bool sharing = false;
  // The folder of the lock files that assign GPUs to the workers of this host;
  // created if missing. One for all jobs of a user.
  std::string lock_dir;
  // CUDA_VISIBLE_DEVICES of this process: the names of its GPUs.
  std::string visible;
  // How long to wait for a GPU when others have all of them.
  // A worker that was killed has its GPU until its memory is freed, and the one
  // that replaces it may be there sooner.
  absl::Duration patience;
};

// A device, and the proof that it is this process's: a locked file, which the
// kernel unlocks when the process ends, however it ends.
struct DeviceLease {
  c10::Device device = c10::Device(c10::kCPU);
  Fd lock;
  // With auto: why it is not a GPU.
  std::string why_cpu;
};

// INVALID_ARGUMENT for an invalid wish, FAILED_PRECONDITION when there is no
// such device here (with what was found and what to do), RESOURCE_EXHAUSTED
// when other workers use all GPUs, or that one.
absl::StatusOr<DeviceLease> TakeDevice(const DeviceWish& wish);

}  // namespace elasticdl::worker
