// Memory of the test device, handed out as CUDA's caching allocator does: a
// block that is freed may be used again at once by work of the stream that it
// was allocated for. Other streams that still use it must have said so.
#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "test_device.h"

namespace elasticdl::test_device {
namespace {

constexpr size_t kGranularity = 512;
// Freed memory is full of NaN.
constexpr int kFreed = 0xFF;

struct Block {
  void* address = nullptr;
  size_t bytes = 0;
  int device = 0;
  cudaStream_t stream = nullptr;
  std::vector<cudaStream_t> users;
};

// Thread-safe.
class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

 private:
  static void Free(void* context);

  // By device, stream and size. Never given back to the runtime.
  using Key = std::tuple<int, cudaStream_t, size_t>;
  mutable std::mutex mu_;
  mutable std::multimap<Key, void*> free_;
};

DeviceAllocator& Instance() {
  static auto* const allocator = new DeviceAllocator;
  return *allocator;
}

c10::DataPtr DeviceAllocator::allocate(size_t bytes) const {
  const int index = CurrentDevice();
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  if (bytes == 0) return {nullptr, nullptr, &Free, device};
  const size_t rounded =
      (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const cudaStream_t stream = CurrentStream(device);
  void* address = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto found = free_.find({index, stream, rounded});
    if (found != free_.end()) {
      address = found->second;
      free_.erase(found);
    }
  }
  if (address == nullptr) {
    const cudaError_t error = cudaMalloc(&address, rounded);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t left = 0;
      size_t total = 0;
      cudaMemGetInfo(&left, &total);
      // libtorch's words.
      TORCH_CHECK(false, "CUDA out of memory. Tried to allocate ", rounded,
                  " bytes (GPU ", index, "; ", total, " bytes total capacity; ",
                  left, " bytes free)");
    }
    Check(error, "cudaMalloc");
  }
  return {address, new Block{address, rounded, index, stream, {}}, &Free,
          device};
}

void DeviceAllocator::Free(void* context) {
  auto* const block = static_cast<Block*>(context);
  if (block == nullptr) return;
  for (const cudaStream_t user : block->users) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, user);
    cudaStreamWaitEvent(block->stream, event, 0);
    cudaEventDestroy(event);
  }
  cudaMemsetAsync(block->address, kFreed, block->bytes, block->stream);
  {
    DeviceAllocator& self = Instance();
    const std::lock_guard<std::mutex> lock(self.mu_);
    self.free_.emplace(Key{block->device, block->stream, block->bytes},
                       block->address);
  }
  delete block;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    void* address = nullptr;
    if (bytes > 0) {
      Check(cudaHostAlloc(&address, bytes, cudaHostAllocDefault),
            "cudaHostAlloc");
    }
    return {address, address, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

 private:
  static void Free(void* address) {
    if (address != nullptr) cudaFreeHost(address);
  }
};

}  // namespace

void Check(cudaError_t error, const char* call) {
  // libtorch's words, with the call.
  TORCH_CHECK(error == cudaSuccess, "CUDA error: ", cudaGetErrorString(error),
              " (", call, ")");
}

c10::Allocator& DeviceMemory() { return Instance(); }

void RecordUse(const c10::DataPtr& memory, const c10::Stream& stream) {
  auto* const block = static_cast<Block*>(memory.get_context());
  const auto user = reinterpret_cast<cudaStream_t>(stream.id());
  if (block == nullptr || user == block->stream) return;
  block->users.push_back(user);
}

c10::Allocator& PinnedMemory() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

bool IsPinned(const void* address) {
  cudaPointerAttributes attributes;
  const bool known =
      cudaPointerGetAttributes(&attributes, address) == cudaSuccess;
  return known && attributes.type == cudaMemoryTypeHost;
}

namespace {
[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::kCUDA, &DeviceMemory());
  return true;
}();
}  // namespace

}  // namespace elasticdl::test_device
