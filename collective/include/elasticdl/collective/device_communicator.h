// The additional operations of a communicator on GPU memory.
// Communicator::device() returns it if there is one.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// An event of the device's runtime: for CUDA a cudaEvent_t, made with
// cudaEventDisableTiming and recorded at least once. (libtorch's device guards
// return the same pointer, so no CUDA headers are needed.)
using DeviceEvent = void*;

// Owned by a Communicator and lives as long. Its calls are collective, count as
// operations of that communicator, and follow its rules: the same order on all
// members (host operations in between included), one thread at a time,
// Communicator::Abort from any thread at any time, the same error codes, every
// later call fails after an error. Nothing here waits for the device except
// Wait.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // The device whose memory AllReduce takes.
  virtual int device_index() const = 0;

  // Enqueues a sum, in place, of `count` elements at `data`, memory of the
  // device. `event` was recorded after the work that writes `data`; the sum
  // begins when it is done. Then `event` is recorded again, so that it is done
  // when the sum is: the caller makes other streams wait for it. Returns when
  // all of this is enqueued; `timeout` limits the enqueuing, not the sum. The
  // caller keeps `data` and `event` until the sum is done, or until the
  // communicator is destroyed.
  //
  // The stream is the communicator's own. After Abort or a failure the event
  // still becomes done soon, with undefined `data`: only Wait says whether the
  // sum is valid.
  virtual absl::Status AllReduce(void* data, size_t count, DataType type,
                                 DeviceEvent event, absl::Duration timeout) = 0;

  // Blocks until `event` is done; it may be recorded by any stream, after sums
  // of this communicator or after work that waits for them (a copy of their
  // result to the host). OK: it is done, and every sum enqueued before it is
  // valid. ABORTED and DEADLINE_EXCEEDED as everywhere, even while the sum
  // hangs because a member died. Not collective.
  virtual absl::Status Wait(DeviceEvent event, absl::Duration timeout) = 0;
};

}  // namespace elasticdl::collective
