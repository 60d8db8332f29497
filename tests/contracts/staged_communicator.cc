#include "contracts/staged_communicator.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

absl::Status Check(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("test: ", cudaGetErrorName(error)));
}

class StagedCommunicator final : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)) {}
  ~StagedCommunicator() override {
    // First: until then the memory may be in use.
    const int index = inner_->device()->device_index();
    inner_.reset();
    cudaSetDevice(index);
    cudaFree(device_);
    cudaFreeHost(pinned_);
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration timeout) override;
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration timeout) override {
    return inner_->Broadcast(data, bytes, root, timeout);
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration timeout) override {
    return inner_->AllGather(in, out, bytes, timeout);
  }
  absl::Status ReduceScatter(void* data, size_t count, DataType type,
                             absl::Duration timeout) override {
    return inner_->ReduceScatter(data, count, type, timeout);
  }
  absl::Status Barrier(absl::Duration timeout) override {
    return inner_->Barrier(timeout);
  }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  absl::Status Reserve(size_t bytes);
  // Both on the stream that computes.
  absl::Status Upload(const void* data, size_t bytes);
  absl::Status Download(size_t bytes);

  std::unique_ptr<Communicator> inner_;
  void* device_ = nullptr;
  void* pinned_ = nullptr;
  size_t capacity_ = 0;
  cudaEvent_t event_ = nullptr;
};

absl::Status StagedCommunicator::Reserve(size_t bytes) {
  ELASTICDL_RETURN_IF_ERROR(
      Check(cudaSetDevice(inner_->device()->device_index())));
  if (event_ == nullptr) {
    ELASTICDL_RETURN_IF_ERROR(
        Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)));
  }
  if (bytes <= capacity_) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(Check(cudaFree(device_)));
  ELASTICDL_RETURN_IF_ERROR(Check(cudaFreeHost(pinned_)));
  capacity_ = bytes;
  ELASTICDL_RETURN_IF_ERROR(Check(cudaMalloc(&device_, bytes)));
  return Check(cudaHostAlloc(&pinned_, bytes, 0));
}

absl::Status StagedCommunicator::Upload(const void* data, size_t bytes) {
  std::memcpy(pinned_, data, bytes);
  ELASTICDL_RETURN_IF_ERROR(Check(cudaMemcpyAsync(
      device_, pinned_, bytes, cudaMemcpyHostToDevice, nullptr)));
  return Check(cudaEventRecord(event_, nullptr));
}

absl::Status StagedCommunicator::Download(size_t bytes) {
  ELASTICDL_RETURN_IF_ERROR(Check(cudaStreamWaitEvent(nullptr, event_, 0)));
  ELASTICDL_RETURN_IF_ERROR(Check(cudaMemcpyAsync(
      pinned_, device_, bytes, cudaMemcpyDeviceToHost, nullptr)));
  return Check(cudaEventRecord(event_, nullptr));
}

absl::Status StagedCommunicator::AllReduce(void* data, size_t count,
                                           DataType type,
                                           absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  const size_t bytes = count * SizeOf(type);
  // NCCL does nothing for no data, so nothing would wait for the others.
  if (bytes == 0) return inner_->AllReduce(data, count, type, timeout);
  ELASTICDL_RETURN_IF_ERROR(Reserve(bytes));
  ELASTICDL_RETURN_IF_ERROR(Upload(data, bytes));
  DeviceCommunicator& device = *inner_->device();
  ELASTICDL_RETURN_IF_ERROR(
      device.AllReduce(device_, count, type, event_, end - absl::Now()));
  ELASTICDL_RETURN_IF_ERROR(Download(bytes));
  ELASTICDL_RETURN_IF_ERROR(device.Wait(event_, end - absl::Now()));
  std::memcpy(data, pinned_, bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> StageOnDevice(
    std::unique_ptr<Communicator> inner) {
  if (inner->device() == nullptr) {
    return absl::InternalError("the world does not use NCCL");
  }
  return std::make_unique<StagedCommunicator>(std::move(inner));
}

void PrepareDevices(int count, const std::string& schedule) {
  setenv("TEST_CUDART_DEVICES", absl::StrCat(count).c_str(), 1);
  setenv("TEST_CUDART_SCHEDULE", schedule.c_str(), 1);
}

absl::StatusOr<int> CountDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  return absl::NotFoundError(error == cudaSuccess ? "CUDA finds none"
                                                  : cudaGetErrorString(error));
}

}  // namespace elasticdl::collective
