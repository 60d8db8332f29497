// The functions of the test libcudart that are about devices and memory.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "memory.h"
#include "state.h"
#include "stream.h"
#include "test_cudart.h"

namespace test_cudart {
namespace {

// The bytes of an address that the device may use.
char* Bytes(const void* address) {
  char* const host = Memory::Get().Host(address);
  return host != nullptr ? host
                         : const_cast<char*>(static_cast<const char*>(address));
}

bool IsDevice(const void* address) {
  return Memory::Get().DeviceOf(address) >= 0;
}

// Why a copy is wrong, or null.
const char* FindMistake(const void* to, const void* from, size_t bytes,
                        cudaMemcpyKind kind) {
  const bool to_device = IsDevice(to);
  const bool from_device = IsDevice(from);
  if (to_device && !Memory::Get().IsAllocated(to, bytes)) {
    return "the destination is not in one allocation";
  }
  if (from_device && !Memory::Get().IsAllocated(from, bytes)) {
    return "the source is not in one allocation";
  }
  const bool fits =
      kind == cudaMemcpyDefault ||
      (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
      (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
      (kind == cudaMemcpyDeviceToDevice && to_device && from_device) ||
      (kind == cudaMemcpyHostToHost && !to_device && !from_device);
  return fits ? nullptr : "the addresses do not fit the direction";
}

bool IsPageable(const void* address, size_t bytes) {
  return !IsDevice(address) && !Memory::Get().IsPinned(address, bytes);
}

void PushCopy(Stream& stream, void* to, const void* from, size_t bytes) {
  if (IsPageable(from, bytes)) {
    // It is copied to a staging buffer before the call returns, after what was
    // on the stream before.
    stream.Wait(stream.pushed());
    auto staged = std::make_shared<std::vector<char>>(
        static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    stream.Push(
        [to, bytes, staged] { std::memcpy(Bytes(to), staged->data(), bytes); });
  } else {
    stream.Push(
        [to, from, bytes] { std::memmove(Bytes(to), Bytes(from), bytes); });
  }
  if (IsPageable(to, bytes)) stream.Wait(stream.pushed());
}

cudaError_t Copy(const char* call, void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t handle) {
  const cudaError_t error = Enter(call);
  if (error != cudaSuccess) return error;
  const auto stream = FindStream(handle);
  if (stream == nullptr) {
    return Misuse(cudaErrorInvalidResourceHandle, call, "no such stream");
  }
  const char* const mistake = FindMistake(to, from, bytes, kind);
  if (mistake != nullptr) return Misuse(cudaErrorInvalidValue, call, mistake);
  if (bytes > 0) PushCopy(*stream, to, from, bytes);
  return cudaSuccess;
}

cudaError_t CheckDevice(const char* call, int device) {
  const cudaError_t error = Enter(call);
  if (error != cudaSuccess) return error;
  return device >= 0 && device < Memory::Get().num_devices()
             ? cudaSuccess
             : Misuse(cudaErrorInvalidDevice, call, "no such device");
}

void Synchronize(int device) {
  for (const auto& stream : AllStreams(device)) {
    stream->Wait(stream->pushed());
  }
}

}  // namespace
}  // namespace test_cudart

using test_cudart::CurrentDevice;
using test_cudart::Enter;
using test_cudart::Memory;
using test_cudart::Misuse;
using test_cudart::Remember;

extern "C" {

void test_cudart_set_schedule(enum TestCudartSchedule schedule) {
  test_cudart::SetSchedule(schedule);
}

void* test_cudart_host(const void* device) {
  return Memory::Get().Host(device);
}

int test_cudart_device_of(const void* address) {
  return Memory::Get().DeviceOf(address);
}

size_t test_cudart_allocated(void) {
  size_t allocated = 0;
  for (int i = 0; i < Memory::Get().num_devices(); ++i) {
    allocated += Memory::Get().Allocated(i);
  }
  return allocated;
}

void test_cudart_break(int error) {
  test_cudart::BreakDevices(static_cast<cudaError_t>(error));
}

void test_cudart_break_after(long calls, int error) {
  test_cudart::BreakDevicesAfter(calls, static_cast<cudaError_t>(error));
}

long test_cudart_calls(void) {
  return static_cast<long>(test_cudart::NumCalls());
}

cudaError_t cudaGetDeviceCount(int* count) {
  const cudaError_t error = Enter(__func__);
  // As the real one: without a device the count is not written.
  if (error != cudaSuccess) return error;
  *count = Memory::Get().num_devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = test_cudart::CheckDevice(__func__, device);
  if (error == cudaSuccess) test_cudart::SetCurrentDevice(device);
  return error;
}

cudaError_t cudaGetDevice(int* device) {
  const cudaError_t error = Enter(__func__);
  if (error == cudaSuccess) *device = CurrentDevice();
  return error;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  const cudaError_t error = test_cudart::CheckDevice(__func__, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    default:
      return Misuse(cudaErrorInvalidValue, __func__,
                    "the double does not know this attribute");
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const cudaError_t error = test_cudart::CheckDevice(__func__, device);
  if (error != cudaSuccess) return error;
  *properties = {};
  std::strncpy(properties->name, "test device", sizeof(properties->name) - 1);
  properties->totalGlobalMem = Memory::Get().capacity();
  properties->major = 8;
  properties->pciBusID = device + 1;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  const cudaError_t error = test_cudart::CheckDevice(__func__, device);
  if (error != cudaSuccess) return error;
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *total = Memory::Get().capacity();
  *free = *total - Memory::Get().Allocated(CurrentDevice());
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Memory::Get().num_devices() > 0 ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = Memory::Get().Allocate(CurrentDevice(), bytes);
  // Not misuse: programs must cope.
  return Remember(*address != nullptr ? cudaSuccess
                                      : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess || address == nullptr) return error;
  const int device = Memory::Get().DeviceOf(address);
  if (device >= 0) test_cudart::Synchronize(device);
  return Memory::Get().Free(address) ? cudaSuccess
                                     : Misuse(cudaErrorInvalidValue, __func__,
                                              "the address is no allocation");
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *address = Memory::Get().AllocatePinned(bytes);
  return Remember(*address != nullptr ? cudaSuccess
                                      : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* address) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess || address == nullptr) return error;
  // Copies that are queued may use it; CUDA waits for them.
  test_cudart::Synchronize(CurrentDevice());
  return Memory::Get().FreePinned(address)
             ? cudaSuccess
             : Misuse(cudaErrorInvalidValue, __func__,
                      "the address is not pinned memory");
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* address) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -1;
  if (Memory::Get().IsAllocated(address, 0)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = Memory::Get().DeviceOf(address);
    attributes->devicePointer = const_cast<void*>(address);
  } else if (Memory::Get().IsPinned(address, 0)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = CurrentDevice();
    attributes->hostPointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return test_cudart::Copy(__func__, to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  const cudaError_t error =
      test_cudart::Copy(__func__, to, from, bytes, kind, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t handle) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  const auto stream = test_cudart::FindStream(handle);
  if (stream == nullptr) {
    return Misuse(cudaErrorInvalidResourceHandle, __func__, "no such stream");
  }
  if (!Memory::Get().IsAllocated(to, bytes)) {
    return Misuse(cudaErrorInvalidValue, __func__,
                  "the destination is not in one allocation");
  }
  stream->Push([to, value, bytes] {
    std::memset(test_cudart::Bytes(to), value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  // Returns before it is done, as the real one.
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaDeviceSynchronize() {
  const cudaError_t error = Enter(__func__);
  if (error == cudaSuccess) test_cudart::Synchronize(CurrentDevice());
  return error;
}

cudaError_t cudaGetLastError() { return test_cudart::TakeLastError(); }
cudaError_t cudaPeekAtLastError() { return test_cudart::PeekLastError(); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define CASE(name) \
  case name:       \
    return #name
    CASE(cudaSuccess);
    CASE(cudaErrorInvalidValue);
    CASE(cudaErrorMemoryAllocation);
    CASE(cudaErrorInitializationError);
    CASE(cudaErrorInsufficientDriver);
    CASE(cudaErrorNoDevice);
    CASE(cudaErrorInvalidDevice);
    CASE(cudaErrorInvalidResourceHandle);
    CASE(cudaErrorNotReady);
    CASE(cudaErrorIllegalAddress);
    CASE(cudaErrorNotPermitted);
    CASE(cudaErrorNotSupported);
    CASE(cudaErrorUnknown);
#undef CASE
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return cudaGetErrorName(error);
  }
}

}  // extern "C"
