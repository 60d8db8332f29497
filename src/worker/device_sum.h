// Sums buckets of gradients on a device over all members of a world: on the
// device if the communicator supports it, else through pinned host memory.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device_stream.h"
#include "elasticdl/collective/communicator.h"
#include "flat_parameters.h"

namespace elasticdl::worker {

enum class GradientCompression { kNone, kBFloat16, kFloat16 };

// Each bucket goes MarkReady, Reduce, Join, by any thread; the caller sees to
// the order. Buckets are independent, but one thread at a time is in Reduce.
class DeviceSum {
 public:
  // `flat` is on a device and must outlive this.
  DeviceSum(FlatParameters& flat, GradientCompression compression,
            size_t num_buckets);

  // This thread's stream has all work that writes the bucket.
  void MarkReady(size_t bucket);
  // Floats [begin, begin + count) of the gradients, and `head` before. After
  // OK, work after Join sees the sum, unless the communicator's
  // DeviceCommunicator::Wait fails. A member that aborts can turn a sum of a
  // DeviceCommunicator, from any place on, and all that follow into nonsense.
  // So the head, which shows whether all members were there, is summed by
  // itself after the gradients.
  absl::Status Reduce(collective::Communicator& communicator, size_t bucket,
                      size_t begin, size_t count, size_t head,
                      absl::Duration timeout);
  // Later work of this thread's stream begins after all that was done to the
  // buckets, also to those that failed.
  void Join();

 private:
  absl::Status Sum(collective::Communicator& communicator, StreamEvent& event,
                   const torch::Tensor& data, absl::Duration timeout);
  // Pinned memory for `data`.
  torch::Tensor Staging(const torch::Tensor& data);

  FlatParameters& flat_;
  const GradientCompression compression_;
  const c10::Stream side_;
  std::vector<std::unique_ptr<StreamEvent>> events_;
  // Made when they are first needed: on the host, as long as the gradients with
  // their head; on the device and on the host, of the compressed type.
  torch::Tensor staging_;
  torch::Tensor half_;
  torch::Tensor half_staging_;
};

}  // namespace elasticdl::worker
