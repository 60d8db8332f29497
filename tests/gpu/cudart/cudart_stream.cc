// The functions of the test libcudart that are about streams and events.
#include <cuda_runtime_api.h>

#include "state.h"
#include "stream.h"

using test_cudart::CurrentDevice;
using test_cudart::Enter;
using test_cudart::FindEvent;
using test_cudart::FindStream;
using test_cudart::Misuse;
using test_cudart::Remember;

namespace {

// The stream or event of a handle, or the error of a call that got a bad one.
template <typename T>
struct Found {
  std::shared_ptr<T> object;
  cudaError_t error = cudaSuccess;
};

Found<test_cudart::Stream> GetStream(const char* call, cudaStream_t handle) {
  Found<test_cudart::Stream> found;
  found.error = Enter(call);
  if (found.error != cudaSuccess) return found;
  found.object = FindStream(handle);
  if (found.object == nullptr) {
    found.error =
        Misuse(cudaErrorInvalidResourceHandle, call, "no such stream");
  }
  return found;
}

Found<test_cudart::Event> GetEvent(const char* call, cudaEvent_t handle) {
  Found<test_cudart::Event> found;
  found.error = Enter(call);
  if (found.error != cudaSuccess) return found;
  found.object = FindEvent(handle);
  if (found.object == nullptr) {
    found.error = Misuse(cudaErrorInvalidResourceHandle, call, "no such event");
  }
  return found;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags,
                                         int) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  if (flags != cudaStreamNonBlocking) {
    return Misuse(cudaErrorNotSupported, __func__,
                  "use cudaStreamNonBlocking: a stream that waits for the null "
                  "stream hides missing waits");
  }
  *handle = test_cudart::AddStream(CurrentDevice());
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  // Does not wait: what is queued is still done.
  return test_cudart::RemoveStream(handle)
             ? cudaSuccess
             : Misuse(cudaErrorInvalidResourceHandle, __func__,
                      "no such stream");
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  const auto found = GetStream(__func__, handle);
  if (found.error == cudaSuccess) *device = found.object->device();
  return found.error;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto found = GetStream(__func__, handle);
  if (found.error != cudaSuccess) return found.error;
  return Remember(found.object->IsDone(found.object->pushed())
                      ? cudaSuccess
                      : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto found = GetStream(__func__, handle);
  if (found.error == cudaSuccess) found.object->Wait(found.object->pushed());
  return found.error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                unsigned) {
  const auto stream = GetStream(__func__, handle);
  if (stream.error != cudaSuccess) return stream.error;
  const auto found = GetEvent(__func__, event);
  if (found.error != cudaSuccess) return found.error;
  // What was recorded by now, whatever is recorded later. Of the same stream it
  // comes first anyway.
  const test_cudart::Event::Mark mark = found.object->mark();
  if (mark.stream != nullptr && mark.stream != stream.object) {
    stream.object->Push([mark] { mark.Wait(); });
  }
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function,
                               void* argument) {
  const auto found = GetStream(__func__, handle);
  if (found.error != cudaSuccess) return found.error;
  found.object->Push([function, argument] { function(argument); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  *handle = test_cudart::AddEvent(CurrentDevice(),
                                  (flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const cudaError_t error = Enter(__func__);
  if (error != cudaSuccess) return error;
  return test_cudart::RemoveEvent(handle)
             ? cudaSuccess
             : Misuse(cudaErrorInvalidResourceHandle, __func__,
                      "no such event");
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const auto event = GetEvent(__func__, handle);
  if (event.error != cudaSuccess) return event.error;
  const auto found = GetStream(__func__, stream);
  if (found.error != cudaSuccess) return found.error;
  if (event.object->device() != found.object->device()) {
    return Misuse(cudaErrorInvalidResourceHandle, __func__,
                  "event and stream are of different devices");
  }
  event.object->Record(found.object);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const auto found = GetEvent(__func__, handle);
  if (found.error != cudaSuccess) return found.error;
  return Remember(found.object->mark().IsDone() ? cudaSuccess
                                                : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const auto found = GetEvent(__func__, handle);
  if (found.error == cudaSuccess) found.object->mark().Wait();
  return found.error;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  const auto first = GetEvent(__func__, begin);
  if (first.error != cudaSuccess) return first.error;
  const auto second = GetEvent(__func__, end);
  if (second.error != cudaSuccess) return second.error;
  const auto from = first.object->mark();
  const auto to = second.object->mark();
  if (!first.object->has_time() || !second.object->has_time() ||
      from.stream == nullptr || to.stream == nullptr) {
    return Misuse(cudaErrorInvalidResourceHandle, __func__,
                  "an event has no time, or was never recorded");
  }
  if (!from.IsDone() || !to.IsDone()) return Remember(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(*to.time - *from.time).count();
  return cudaSuccess;
}

}  // extern "C"
