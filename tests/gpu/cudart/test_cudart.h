// A libcudart for machines without a GPU: what tests and the other doubles know
// of it beyond the CUDA API. Production code includes only the real
// cuda_runtime_api.h, is linked with the real library, and finds this one by
// LD_LIBRARY_PATH.
//
// What it is:
//  * Device memory has addresses that the host cannot touch (PROT_NONE). Its
//    bytes lie at the same offset of another mapping, see test_cudart_host.
//    New and freed memory is full of 0xFF.
//  * A stream is a queue with a thread. A *lazy* stream runs nothing until
//    somebody waits for it or asks (synchronize, query, an event in a stream
//    that is itself wanted); an eager one runs at once. No single schedule
//    finds every missing wait: run each test under kNullLazy, kSideLazy and
//    kAllLazy.
//  * Misuse is an error, and a line on stderr says which: addresses outside of
//  an
//    allocation, a copy against its direction, handles that are none, calls in
//    a host function, calls after fork.
//  * Copies from and to memory that is not pinned wait for the stream, as
//  CUDA's
//    do. Streams never wait for the null stream on their own; one that would
//    (without cudaStreamNonBlocking) is refused.
//
// Settings, read at the first call:
//   TEST_CUDART_SCHEDULE  eager (default), null, side, all: what is lazy
//   TEST_CUDART_DEVICES   how many devices there are, default 1; 0 = none
//   TEST_CUDART_MEMORY    bytes of each device, default 8 GiB
//   TEST_CUDART_FAULT     break@N: from the Nth call on every call fails with
//                         cudaErrorIllegalAddress; hang@N: streams do nothing
//                         any more
//   TEST_CUDART_FAULT_ONCE  a file: whoever can make it has the fault, others
//   do
//                         not
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum TestCudartSchedule {
  kTestCudartEager = 0,
  // The null streams are lazy, the others run at once.
  kTestCudartNullLazy = 1,
  // The other way round.
  kTestCudartSideLazy = 2,
  kTestCudartAllLazy = 3,
};
// From now on, for all streams. Thread-safe.
void test_cudart_set_schedule(enum TestCudartSchedule schedule);

// Where the bytes of a device address are; null for any other address. May be
// called in a host function (cudaLaunchHostFunc), which is how libraries put
// work of their own on a stream.
void* test_cudart_host(const void* device);

// The device that an address belongs to, -1 for a host address.
int test_cudart_device_of(const void* address);

// Bytes that are allocated at this moment on all devices, for leak tests.
size_t test_cudart_allocated(void);

// From now on every call fails with this cudaError_t, as after a crashed
// kernel. 0 ends it, which no real device does.
void test_cudart_break(int error);
// The same after so many more calls of any function. Calls so far.
void test_cudart_break_after(long calls, int error);
long test_cudart_calls(void);

#ifdef __cplusplus
}  // extern "C"
#endif
