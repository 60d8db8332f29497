// Worlds of two whose other member has the same gradients, on a device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <test_cudart.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/time/time.h"
#include "elasticdl/collective/device_communicator.h"
#include "mirror.h"

namespace elasticdl::worker::test {

// The same on the device, as a library with a stream of its own does it.
class DeviceMirror : public Mirror, public collective::DeviceCommunicator {
 public:
  DeviceMirror() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~DeviceMirror() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  collective::DeviceCommunicator* device() override { return this; }
  int device_index() const override { return 0; }
  absl::Status AllReduce(void*, size_t, DataType, absl::Duration) override {
    return absl::InternalError("gradients of a device are summed there");
  }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         collective::DeviceEvent event,
                         absl::Duration timeout) override {
    longest = std::max(longest, timeout);
    const absl::Status status = Count();
    failed_ = failed_ || !status.ok();
    size_t valid = status.ok() ? count : 0;
    if (abort_after_ >= 0 && abort_after_-- == 0) {
      nonsense_ = true;
      valid /= 2;
    } else if (nonsense_) {
      valid = 0;
    }
    auto* const sum = new Sum{data, count, type, valid};
    const auto cuda_event = static_cast<cudaEvent_t>(event);
    EXPECT_EQ(cudaStreamWaitEvent(stream_, cuda_event, 0), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(stream_, &Run, sum), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(cuda_event, stream_), cudaSuccess);
    return absl::OkStatus();
  }
  // The other member aborts in the middle of the next such sum: that one and
  // those after it end with nonsense, and nobody says so.
  void AbortAfter(int calls) { abort_after_ = calls; }

  // Of all timeouts. The caller has waited for the thread that sums.
  absl::Duration longest = absl::ZeroDuration();

  absl::Status Wait(collective::DeviceEvent event,
                    absl::Duration timeout) override {
    longest = std::max(longest, timeout);
    EXPECT_EQ(cudaEventSynchronize(static_cast<cudaEvent_t>(event)),
              cudaSuccess);
    return failed_ ? absl::AbortedError("rank 0 is gone") : absl::OkStatus();
  }

 private:
  struct Sum {
    void* data;
    size_t count;
    DataType type;
    // So much of it is summed.
    size_t valid;
  };
  static void Run(void* context) {
    const std::unique_ptr<Sum> sum(static_cast<Sum*>(context));
    void* host = test_cudart_host(sum->data);
    const size_t size = collective::SizeOf(sum->type);
    // What is left in the buffer of a sum that failed is anything.
    memset(static_cast<char*>(host) + sum->valid * size, 0x7F,
           (sum->count - sum->valid) * size);
    for (size_t i = 0; i < sum->valid; ++i) {
      if (sum->type == DataType::kFloat32) {
        static_cast<float*>(host)[i] *= 2;
      } else {
        auto* const value = static_cast<at::BFloat16*>(host) + i;
        *value = static_cast<float>(*value) * 2;
      }
    }
  }

  cudaStream_t stream_ = nullptr;
  bool failed_ = false;
  int abort_after_ = -1;
  bool nonsense_ = false;
};

}  // namespace elasticdl::worker::test
