// Devices, streams and events of the test device, as libtorch's device guard.
// The id of a stream is its cudaStream_t, an event is a cudaEvent_t.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "test_device.h"

namespace elasticdl::test_device {
namespace {

constexpr size_t kMaxDevices = 16;
constexpr int kPoolSize = 8;
thread_local std::array<cudaStream_t, kMaxDevices> current_streams = {};

c10::DeviceIndex IndexOf(c10::Device device) {
  return device.has_index() ? device.index()
                            : static_cast<c10::DeviceIndex>(CurrentDevice());
}
cudaStream_t Raw(const c10::Stream& stream) {
  return reinterpret_cast<cudaStream_t>(stream.id());
}
c10::Stream Wrap(cudaStream_t stream, c10::Device device) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(c10::kCUDA, IndexOf(device)),
                     reinterpret_cast<c10::StreamId>(stream));
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(CurrentDevice())};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      Check(cudaSetDevice(device.index()), "cudaSetDevice");
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) cudaSetDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
    return static_cast<c10::DeviceIndex>(count);
  }

  c10::Stream getStream(c10::Device device) const noexcept override {
    return Wrap(CurrentStream(device), device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return Wrap(nullptr, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static auto& mu = *new std::mutex;
    static auto& pools = *new std::map<int, std::vector<cudaStream_t>>;
    static size_t next = 0;
    const std::lock_guard<std::mutex> lock(mu);
    std::vector<cudaStream_t>& pool = pools[IndexOf(device)];
    while (pool.size() < kPoolSize) {
      cudaStream_t stream = nullptr;
      Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");
      pool.push_back(stream);
    }
    return Wrap(pool[next++ % pool.size()], device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream old = getStream(stream.device());
    current_streams[static_cast<size_t>(IndexOf(stream.device()))] =
        Raw(stream);
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return cudaStreamQuery(Raw(stream)) == cudaSuccess;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Check(cudaStreamSynchronize(Raw(stream)), "cudaStreamSynchronize");
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) {
      cudaEvent_t made = nullptr;
      Check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming),
            "cudaEventCreateWithFlags");
      *event = made;
    }
    Check(cudaEventRecord(static_cast<cudaEvent_t>(*event), Raw(stream)),
          "cudaEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Check(cudaStreamWaitEvent(Raw(stream), static_cast<cudaEvent_t>(event), 0),
          "cudaStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    return event == nullptr ||
           cudaEventQuery(static_cast<cudaEvent_t>(event)) == cudaSuccess;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory,
                             const c10::Stream& stream) const override {
    RecordUse(memory, stream);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace

int CurrentDevice() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

cudaStream_t CurrentStream(c10::Device device) {
  return current_streams[static_cast<size_t>(IndexOf(device))];
}

}  // namespace elasticdl::test_device
