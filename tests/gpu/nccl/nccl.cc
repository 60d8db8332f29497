// The functions of the test libnccl.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "comm.h"
#include "test_cudart.h"
#include "test_nccl.h"

namespace test_nccl {
namespace {

thread_local std::string last_error;
thread_local int group_depth = 0;
thread_local bool group_ends = false;
thread_local std::vector<std::function<ncclResult_t()>> group;

ncclResult_t Fail(ncclResult_t result, const std::string& why) {
  last_error = why;
  std::fprintf(stderr, "test nccl: %s\n", why.c_str());
  return result;
}

bool IsSet(const char* name, const char* value) {
  const char* const set = std::getenv(name);
  return set != nullptr && std::strcmp(set, value) == 0;
}

// Communicators are not thread-safe: tells who forgets it.
class OneThread {
 public:
  explicit OneThread(ncclComm* comm) : comm_(comm) {
    if (comm_->users.fetch_add(1) == 0) return;
    std::fprintf(stderr, "test nccl: two threads use one communicator\n");
    std::abort();
  }
  ~OneThread() {
    if (comm_ != nullptr) --comm_->users;
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  // The communicator is about to be deleted.
  void Forget() { comm_ = nullptr; }

 private:
  ncclComm* comm_;
};

ncclResult_t CheckReady(ncclComm* comm) {
  const ncclResult_t state = comm->link->state();
  if (comm->link->aborted()) {
    return Fail(ncclInvalidUsage, "the communicator was revoked");
  }
  // Others of the same group.
  if (state == ncclInProgress && group_ends && !comm->launches.empty()) {
    return ncclSuccess;
  }
  if (state == ncclInProgress) {
    return Fail(ncclInvalidArgument,
                "the call before has not ended: poll ncclCommGetAsyncError");
  }
  return state;
}

ncclResult_t Start(ncclComm_t* out, int size, int rank, bool blocking,
                   const std::string& name) {
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) {
    return Fail(ncclInvalidArgument, "bad rank or size");
  }
  auto comm = std::make_unique<ncclComm>();
  char gpu[32] = "";
  if (cudaGetDevice(&comm->device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(gpu, sizeof(gpu), comm->device) != cudaSuccess) {
    return Fail(ncclUnhandledCudaError, "no device");
  }
  // Without it, as when there is no memory left, the communicator works too.
  if (cudaMalloc(&comm->memory, 1) != cudaSuccess) comm->memory = nullptr;
  comm->blocking = blocking;
  comm->link = std::make_shared<Link>(rank, size, Segment::Open(name));
  comm->helper = std::thread(
      [link = comm->link, gpu = std::string(gpu)] { link->Attach(gpu); });
  *out = comm.release();
  if (!blocking) return ncclInProgress;
  (*out)->helper.join();
  return (*out)->link->state();
}

// An operation on its way through a stream.
struct Queued {
  std::shared_ptr<Link> link;
  std::shared_ptr<std::atomic<int>> queued;
  std::function<void(Link&)> work;
};

void RunQueued(void* argument) {
  const std::unique_ptr<Queued> operation(static_cast<Queued*>(argument));
  if (operation->link->Begin()) {
    operation->work(*operation->link);
    operation->link->End();
  }
  --*operation->queued;
}

ncclResult_t Enqueue(ncclComm* comm, cudaStream_t stream,
                     const std::function<void(Link&)>& work) {
  const auto run = [comm, stream, work]() -> ncclResult_t {
    const OneThread one(comm);
    const ncclResult_t ready = CheckReady(comm);
    if (ready != ncclSuccess) return ready;
#if CUDART_VERSION >= 12080
    int device = -1;
    if (cudaStreamGetDevice(stream, &device) != cudaSuccess ||
        device != comm->device) {
      return Fail(ncclInvalidArgument, "the stream is of another device");
    }
#endif
    const auto launch = [link = comm->link, queued = comm->queued, stream,
                         work] {
      ++*queued;
      if (cudaLaunchHostFunc(stream, RunQueued,
                             new Queued{link, queued, work}) != cudaSuccess) {
        link->set_state(ncclUnhandledCudaError);
      }
    };
    if (comm->blocking) {
      launch();
      return ncclSuccess;
    }
    comm->launches.push_back(launch);
    comm->link->set_state(ncclInProgress);
    return ncclInProgress;
  };
  if (group_depth > 0) {
    group.push_back(run);
    return ncclSuccess;
  }
  return run();
}

// Connections of a communicator are opened by its first sum.
ncclResult_t FailLater(ncclComm* comm) {
  const OneThread one(comm);
  const ncclResult_t ready = CheckReady(comm);
  if (ready != ncclSuccess) return ready;
  if (comm->blocking) return Fail(ncclSystemError, "a sum cannot connect");
  comm->launches.push_back(
      [link = comm->link] { link->set_state(ncclSystemError); });
  comm->link->set_state(ncclInProgress);
  return ncclInProgress;
}

char* Bytes(const void* device) {
  return static_cast<char*>(test_cudart_host(device));
}

bool IsOnDevice(ncclComm* comm, const void* address) {
  return test_cudart_device_of(address) == comm->device;
}

ncclResult_t CheckSum(ncclComm* comm, const void* in, const void* out,
                      ncclRedOp_t op) {
  if (!IsOnDevice(comm, in) || !IsOnDevice(comm, out)) {
    return Fail(ncclInvalidArgument,
                "the address is not memory of the communicator's device");
  }
  if (op != ncclSum) return Fail(ncclInvalidArgument, "only sums are known");
  return ncclSuccess;
}

// `link.Exchange` for arrays that are longer than a slot.
void ForEachPiece(size_t count, size_t element,
                  const std::function<bool(size_t at, size_t count)>& piece) {
  const size_t most = kSlotBytes / element;
  for (size_t i = 0; i < count; i += most) {
    if (!piece(i, std::min(most, count - i))) return;
  }
}

}  // namespace
}  // namespace test_nccl

using test_nccl::BytesOf;
using test_nccl::Fail;
using test_nccl::Link;
using test_nccl::OneThread;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::string name = test_nccl::Segment::Create();
  if (name.empty()) return Fail(ncclSystemError, "no shared memory");
  name.copy(id->internal, sizeof(id->internal) - 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  if (config != nullptr && config->magic != 0xcafebeef) {
    return Fail(ncclInvalidArgument,
                "the configuration lacks NCCL_CONFIG_INITIALIZER");
  }
  return test_nccl::Start(comm, size, rank,
                          config == nullptr || config->blocking != 0,
                          id.internal);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id,
                              int rank) {
  return test_nccl::Start(comm, size, rank, /*blocking=*/true, id.internal);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const OneThread one(comm);
  auto launches = std::exchange(comm->launches, {});
  if (!launches.empty()) comm->link->set_state(ncclSuccess);
  for (const auto& launch : launches) launch();
  *error = comm->link->state();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++test_nccl::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (test_nccl::group_depth == 0) {
    return Fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--test_nccl::group_depth > 0) return ncclSuccess;
  const auto calls = std::exchange(test_nccl::group, {});
  ncclResult_t result = ncclSuccess;
  test_nccl::group_ends = true;
  for (const auto& call : calls) {
    const ncclResult_t one = call();
    if (result == ncclSuccess || result == ncclInProgress) {
      if (one != ncclSuccess) result = one;
    }
  }
  test_nccl::group_ends = false;
  return result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  const ncclResult_t good = test_nccl::CheckSum(comm, in, out, op);
  if (good != ncclSuccess) return good;
  if (test_nccl::IsSet("TEST_NCCL_SUM", "error")) {
    return test_nccl::FailLater(comm);
  }
  return test_nccl::Enqueue(comm, stream, [=](Link& link) {
    const size_t element = BytesOf(type);
    test_nccl::ForEachPiece(count, element, [&](size_t at, size_t n) {
      return link.Exchange(
          test_nccl::Bytes(in) + at * element, n * element,
          {test_nccl::kAllReduce, type, 0, count},
          [&] { link.Sum(type, n, test_nccl::Bytes(out) + at * element); });
    });
  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  if (!test_nccl::IsOnDevice(comm, out) || root < 0 ||
      root >= comm->link->size()) {
    return Fail(ncclInvalidArgument, "no device memory, or no such root");
  }
  return test_nccl::Enqueue(comm, stream, [=](Link& link) {
    const size_t element = BytesOf(type);
    const bool shows = link.rank() == root;
    test_nccl::ForEachPiece(count, element, [&](size_t at, size_t n) {
      return link.Exchange(
          shows ? test_nccl::Bytes(in) + at * element : nullptr,
          shows ? n * element : 0, {test_nccl::kBroadcast, type, root, count},
          [&] {
            std::memcpy(test_nccl::Bytes(out) + at * element, link.Slot(root),
                        n * element);
          });
    });
  });
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const ncclResult_t good = test_nccl::CheckSum(comm, in, out, ncclSum);
  if (good != ncclSuccess) return good;
  return test_nccl::Enqueue(comm, stream, [=](Link& link) {
    const size_t element = BytesOf(type);
    test_nccl::ForEachPiece(count, element, [&](size_t at, size_t n) {
      return link.Exchange(
          test_nccl::Bytes(in) + at * element, n * element,
          {test_nccl::kAllGather, type, 0, count}, [&] {
            for (int rank = 0; rank < link.size(); ++rank) {
              const size_t first = static_cast<size_t>(rank) * count + at;
              std::memcpy(test_nccl::Bytes(out) + first * element,
                          link.Slot(rank), n * element);
            }
          });
    });
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  OneThread one(comm);
  comm->link->Abort();
  if (test_nccl::IsSet("TEST_NCCL_ABORT", "hang")) {
    for (;;) pause();
  }
  if (comm->helper.joinable()) comm->helper.join();
  if (test_nccl::IsSet("TEST_NCCL_ABORT", "collective")) {
    comm->link->AwaitAllAborted();
  }
  comm->link->AwaitIdle();
  // Waits for all kernels of the device, whosever they are.
  if (comm->memory != nullptr) {
    cudaSetDevice(comm->device);
    cudaFree(comm->memory);
  }
  one.Forget();
  delete comm;
  return ncclSuccess;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  const OneThread one(comm);
  comm->link->Abort();
  return ncclSuccess;
}
#endif

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const OneThread one(comm);
  const ncclResult_t ready = test_nccl::CheckReady(comm);
  if (ready != ncclSuccess) return ready;
  comm->link->set_state(ncclInProgress);
  if (comm->helper.joinable()) comm->helper.join();
  comm->helper = std::thread([link = comm->link, queued = comm->queued] {
    while (*queued > 0 && !link->aborted()) std::this_thread::yield();
    link->Finalize();
  });
  if (!comm->blocking) return ncclInProgress;
  comm->helper.join();
  return comm->link->state();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  OneThread one(comm);
  // As NCCL: with a hung operation it hangs.
  while (*comm->queued > 0 && !comm->link->aborted()) std::this_thread::yield();
  if (comm->helper.joinable()) comm->helper.join();
  one.Forget();
  delete comm;
  return ncclSuccess;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
// Blocks until the first of those who are left has called it, non-blocking or
// not.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int num_excluded,
                            ncclComm_t* out, ncclConfig_t* config, int flags) {
  const OneThread one(comm);
  if ((flags & NCCL_SHRINK_ABORT) != 0) {
    comm->link->Abort();
  } else {
    const ncclResult_t ready = test_nccl::CheckReady(comm);
    if (ready != ncclSuccess) return ready;
  }
  int rank = 0;
  for (int i = 0; i < comm->link->rank(); ++i) {
    if (std::count(excluded, excluded + num_excluded, i) == 0) ++rank;
  }
  if (std::count(excluded, excluded + num_excluded, comm->link->rank()) != 0) {
    return Fail(ncclInvalidArgument, "an excluded rank calls ncclCommShrink");
  }
  const std::string name =
      comm->link->ShrinkName(comm->num_shrinks++, rank == 0);
  const bool inherits =
      config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT;
  return test_nccl::Start(out, comm->link->size() - num_excluded, rank,
                          inherits ? comm->blocking : config->blocking != 0,
                          name);
}
#endif

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->link->size();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->link->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return test_nccl::last_error.c_str();
}

}  // extern "C"
