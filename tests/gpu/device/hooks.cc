// What libtorch asks of CUDA beyond operators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "test_device.h"

namespace elasticdl::test_device {
namespace {

// libtorch looks for a class of this name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs /*args*/) {}
  void initCUDA() const override {}
  bool hasCUDA() const override { return getNumGPUs() > 0; }
  bool hasCUDART() const override { return true; }
  int getNumGPUs() const override {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }
  int64_t current_device() const override { return CurrentDevice(); }
  bool hasPrimaryContext(int64_t /*device*/) const override { return true; }
  bool isPinnedPtr(void* address) const override { return IsPinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &PinnedMemory();
  }
  at::Allocator* getCUDADeviceAllocator() const override {
    return &DeviceMemory();
  }
  at::Device getDeviceFromPtr(void* /*address*/) const override {
    return {at::kCUDA, static_cast<at::DeviceIndex>(CurrentDevice())};
  }
  void deviceSynchronize(int64_t /*device*/) const override {
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  // Operators compute on the CPU, with a generator of the CPU.
  const at::Generator& getDefaultCUDAGenerator(
      at::DeviceIndex /*device*/) const override {
    static auto* const generator =
        new at::Generator(at::make_generator<at::CPUGeneratorImpl>(1));
    return *generator;
  }
};

using at::CUDAHooksArgs;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace
}  // namespace elasticdl::test_device
