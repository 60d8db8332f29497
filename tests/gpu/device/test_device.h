// Device `cuda:0` (and more, TEST_CUDART_DEVICES) of a libtorch without CUDA,
// on the double of libcudart (../cudart/test_cudart.h): memory that the host
// cannot touch, streams that run late. Operators compute on the CPU, so results
// are the CPU's.
//
// A program that loads libelasticdl_test_device.so (linked, or by LD_PRELOAD)
// has it: torch::cuda::is_available() is true, and autograd runs as it does
// with CUDA. It is registered for the CUDA key, because libtorch refuses
// set_data for keys that it does not know. Not for a libtorch that has CUDA.
//
// As on a GPU: operands of an operator must be on one device, freed memory goes
// back to the stream that it was allocated for at once (record_stream matters),
// and copies of pinned memory are asynchronous. Not as on a GPU: an operator
// reads its operands when it is called, only its result is written by the
// stream; so a buffer that is overwritten too early is noticed only by copies.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace elasticdl::test_device {

// Throws c10::Error for an error of the runtime.
void Check(cudaError_t error, const char* call);

int CurrentDevice();
// Of this thread.
cudaStream_t CurrentStream(c10::Device device);

// Memory of the current device, for its current stream.
c10::Allocator& DeviceMemory();
// Work of `stream` uses the memory, too: it is kept until then.
void RecordUse(const c10::DataPtr& memory, const c10::Stream& stream);

c10::Allocator& PinnedMemory();
bool IsPinned(const void* address);

}  // namespace elasticdl::test_device
