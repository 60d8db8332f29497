// Copies minibatches to a device on a separate stream, overlapped with the
// computation.
#pragma once

#include <memory>

#include "device_stream.h"
#include "elasticdl/model/types.h"

namespace elasticdl::worker {

// Tensors of pinned memory, for a device; as they are, for the CPU. Any thread.
Batch Pinned(const Batch& batch, c10::Device device);

// Converts images (float tensors with four dimensions) to channels last.
// Weights do not change; convolutions follow their input. Any thread.
Batch ChannelsLast(const Batch& batch);

// Runs on the training thread.
class BatchMover {
 public:
  explicit BatchMover(c10::Device device)
      : device_(device), stream_(SideStream(device)) {}

  // A batch on its way. The one on the host is needed until it has arrived.
  struct Moving {
    Batch host;
    Batch batch;
    std::shared_ptr<StreamEvent> arrived;
  };
  // Enqueues the copy; asynchronous if the batch is pinned.
  Moving Start(Batch host);
  // Later work of this thread's stream begins when the batch is there, and the
  // device keeps the batch until that work is done. May be called again.
  void Arrive(const Moving& moving) const;

 private:
  const c10::Device device_;
  const c10::Stream stream_;
};

}  // namespace elasticdl::worker
