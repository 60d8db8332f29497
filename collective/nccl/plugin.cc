// libelasticdl_nccl.so: NCCL and the CUDA runtime behind a table of C
// functions. Everything that is used here exists since NCCL 2.18; the newest
// that is compiled against is 2.28.
#include "nccl/plugin.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace {

static_assert(sizeof(ncclUniqueId) == ELASTICDL_NCCL_ID_BYTES,
              "the size of an id has changed");
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0),
              "non-blocking communicators need NCCL 2.18");

struct World {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int device = 0;
};

thread_local char last_error[512] = "";

int Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return kElasticdlNcclDone;
  // Else libtorch finds it and blames its own next kernel.
  cudaGetLastError();
  std::snprintf(last_error, sizeof(last_error), "%s: %s (%s)", what,
                cudaGetErrorString(error), cudaGetErrorName(error));
  return kElasticdlNcclDeviceFailed;
}

int Check(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result == ncclSuccess) return kElasticdlNcclDone;
  if (result == ncclInProgress) return kElasticdlNcclInProgress;
  const char* const detail = ncclGetLastError(comm);
  std::snprintf(last_error, sizeof(last_error), "%s: %s%s%s", what,
                ncclGetErrorString(result),
                detail != nullptr && *detail != '\0' ? "; " : "",
                detail != nullptr ? detail : "");
  // ncclUnhandledCudaError, too: opening the memory of a member that has just
  // died ends in it. A device that is broken shows itself in the next call to
  // it.
  return kElasticdlNcclFailed;
}

int Open(int device, ElasticdlNcclFacts* facts) {
  *facts = {};
  int version = 0;
  int result =
      Check(ncclGetVersion(&version), "ask NCCL for its version", nullptr);
  if (result != kElasticdlNcclDone) return result;
  facts->nccl_version = version;
  int devices = 0;
  result = Check(cudaGetDeviceCount(&devices), "look for GPUs");
  if (result != kElasticdlNcclDone) return result;
  facts->num_devices = devices;
  return Check(cudaDeviceGetPCIBusId(facts->gpu, sizeof(facts->gpu), device),
               "ask the GPU for its name");
}

int MakeId(char* id) {
  ncclUniqueId unique;
  const int result =
      Check(ncclGetUniqueId(&unique), "make an id for NCCL", nullptr);
  std::memcpy(id, &unique, sizeof(unique));
  return result;
}

int Init(const char* id, int rank, int size, int device, void** world) {
  *world = nullptr;
  int result = Check(cudaSetDevice(device), "take the GPU");
  if (result != kElasticdlNcclDone) return result;
  auto made = std::make_unique<World>();
  made->device = device;
  // The highest priority: the sum of one bucket should not wait for the
  // backward pass of the next.
  int least = 0;
  int greatest = 0;
  result = Check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                 "ask the GPU for priorities");
  if (result != kElasticdlNcclDone) return result;
  result = Check(cudaStreamCreateWithPriority(&made->stream,
                                              cudaStreamNonBlocking, greatest),
                 "make a stream");
  if (result != kElasticdlNcclDone) return result;
  ncclUniqueId unique;
  std::memcpy(&unique, id, sizeof(unique));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  result =
      Check(ncclCommInitRankConfig(&made->comm, size, unique, rank, &config),
            "connect NCCL", nullptr);
  if (made->comm == nullptr) {
    cudaStreamDestroy(made->stream);
    return result == kElasticdlNcclDone ? kElasticdlNcclFailed : result;
  }
  *world = made.release();
  return result;
}

int State(void* world) {
  auto* const self = static_cast<World*>(world);
  ncclResult_t state = ncclSuccess;
  const int asked = Check(ncclCommGetAsyncError(self->comm, &state),
                          "ask NCCL for its state", self->comm);
  if (asked != kElasticdlNcclDone) return asked;
  return Check(state, "NCCL", self->comm);
}

bool ToNccl(int type, ncclDataType_t* to) {
  switch (type) {
    case kElasticdlNcclFloat32:
      *to = ncclFloat32;
      return true;
    case kElasticdlNcclBFloat16:
      *to = ncclBfloat16;
      return true;
    case kElasticdlNcclFloat16:
      *to = ncclFloat16;
      return true;
    case kElasticdlNcclInt64:
      *to = ncclInt64;
      return true;
    default:
      return false;
  }
}

int AllReduce(void* world, void* data, size_t count, int type, void* event) {
  auto* const self = static_cast<World*>(world);
  ncclDataType_t nccl_type = ncclFloat32;
  if (!ToNccl(type, &nccl_type)) {
    std::snprintf(last_error, sizeof(last_error), "unknown type %d", type);
    return kElasticdlNcclFailed;
  }
  int result = Check(cudaSetDevice(self->device), "take the GPU");
  if (result != kElasticdlNcclDone) return result;
  result = Check(
      cudaStreamWaitEvent(self->stream, static_cast<cudaEvent_t>(event), 0),
      "let NCCL's stream wait");
  if (result != kElasticdlNcclDone) return result;
  return Check(ncclAllReduce(data, data, count, nccl_type, ncclSum, self->comm,
                             self->stream),
               "add up", self->comm);
}

int Record(void* world, void* event) {
  auto* const self = static_cast<World*>(world);
  const int result = Check(cudaSetDevice(self->device), "take the GPU");
  if (result != kElasticdlNcclDone) return result;
  return Check(cudaEventRecord(static_cast<cudaEvent_t>(event), self->stream),
               "record an event");
}

int Query(int device, void* event) {
  const int result = Check(cudaSetDevice(device), "take the GPU");
  if (result != kElasticdlNcclDone) return result;
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (error == cudaErrorNotReady) {
    // It would stay as this thread's last error.
    cudaGetLastError();
    return kElasticdlNcclInProgress;
  }
  return Check(error, "wait for the GPU");
}

int Abort(void* world) {
  const std::unique_ptr<World> self(static_cast<World*>(world));
  cudaSetDevice(self->device);
  const int result = Check(ncclCommAbort(self->comm), "abort", nullptr);
  cudaStreamDestroy(self->stream);
  return result;
}

void Describe(char* text, size_t bytes) {
  std::snprintf(text, bytes, "%s", last_error);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ElasticdlNcclTable*
elasticdl_nccl_table() {
  static const ElasticdlNcclTable table = {ELASTICDL_NCCL_VERSION,
                                           Open,
                                           MakeId,
                                           Init,
                                           State,
                                           AllReduce,
                                           Record,
                                           Query,
                                           Abort,
                                           Describe};
  return &table;
}
