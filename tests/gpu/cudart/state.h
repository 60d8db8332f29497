// What the functions of the test libcudart share: checks at entry, handles, the
// last error of a thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "stream.h"

namespace test_cudart {

// May this call be made here and now? Remembers an error for cudaGetLastError.
cudaError_t Enter(const char* call);
// Says on stderr what was wrong, and remembers and returns `error`.
cudaError_t Misuse(cudaError_t error, const char* call, const char* why);
// Remembers and returns `error`, unless it is cudaSuccess.
cudaError_t Remember(cudaError_t error);
cudaError_t PeekLastError();
// And forgets it, unless the device is broken.
cudaError_t TakeLastError();
void BreakDevices(cudaError_t error);
void BreakDevicesAfter(int64_t calls, cudaError_t error);
int64_t NumCalls();

int CurrentDevice();
void SetCurrentDevice(int device);

// Null for a handle that is none, or not any more. A null handle and
// cudaStreamLegacy are the null stream of the current device.
std::shared_ptr<Stream> FindStream(cudaStream_t handle);
cudaStream_t AddStream(int device);
// False if there is no such stream.
bool RemoveStream(cudaStream_t handle);
// Of one device, the null stream included.
std::vector<std::shared_ptr<Stream>> AllStreams(int device);

std::shared_ptr<Event> FindEvent(cudaEvent_t handle);
cudaEvent_t AddEvent(int device, bool has_time);
bool RemoveEvent(cudaEvent_t handle);

}  // namespace test_cudart
