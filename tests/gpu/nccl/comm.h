// A rank of a test communicator.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "segment.h"

namespace test_nccl {

enum Kind : int32_t { kAllReduce = 1, kBroadcast, kAllGather, kReduceScatter };

size_t BytesOf(ncclDataType_t type);

// What operations that are still queued on a stream hold on to, after their
// communicator has gone. Thread-safe, except Exchange and the sums, which run
// on the stream.
class Link {
 public:
  // `segment` is null if it cannot be opened any more.
  Link(int rank, int size, std::shared_ptr<Segment> segment)
      : rank_(rank), size_(size), segment_(std::move(segment)) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  ncclResult_t state() const { return state_; }
  void set_state(ncclResult_t state) { state_ = state; }
  bool aborted() const { return aborted_; }

  // Waits for all ranks; sets the state.
  void Attach(const std::string& gpu);
  // The name of the segment of those who are left by the communicator's
  // `number`th shrink. The `maker` makes it, the others wait for it.
  std::string ShrinkName(int number, bool maker);
  // Waits for all other ranks' call of it.
  void Finalize();
  void Abort();
  // Until every living rank has aborted.
  void AwaitAllAborted();
  // Around each operation that runs.
  bool Begin();
  void End();
  void AwaitIdle();

  // Shows `bytes` of our own and lets `read` read those of all ranks. False if
  // aborted.
  bool Exchange(const void* own, size_t bytes, const Operation& operation,
                const std::function<void()>& read);
  const char* Slot(int rank) { return segment_->rank(rank).slot; }
  // Adds up the slots, in the order of ranks.
  void Sum(ncclDataType_t type, size_t count, void* out);

 private:
  // Until all ranks have come to `number`. False if aborted.
  bool AwaitAll(std::atomic<uint64_t> RankState::*what, uint64_t number);
  void CheckSame(const Operation& operation);
  bool HasDuplicateGpu();

  const int rank_;
  const int size_;
  const std::shared_ptr<Segment> segment_;
  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> aborted_{false};
  std::atomic<int> running_{0};
  uint64_t number_ = 0;
};

}  // namespace test_nccl

struct ncclComm {
  std::shared_ptr<test_nccl::Link> link;
  bool blocking = true;
  int device = 0;
  int num_shrinks = 0;
  // On the device.
  void* memory = nullptr;
  // Runs init or finalize.
  std::thread helper;
  // Operations that wait for ncclCommGetAsyncError.
  std::vector<std::function<void()>> launches;
  // Queued on a stream and not ended.
  std::shared_ptr<std::atomic<int>> queued =
      std::make_shared<std::atomic<int>>(0);
  // Threads inside of it.
  std::atomic<int> users{0};
};
