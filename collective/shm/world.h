// Synchronization between members through shared memory.
//
// Each rank counts *phases*. In phase k it may write data into its part of the
// memory; then it publishes k. In every operation, publishing k means: my data
// of phase k is complete, and I have finished reading all data of phases <= k
// - 2. So a rank may publish k + 1 before it reads k, and memory of phase k may
// be overwritten when all have published k + 2 (SlotRing).
//
// A wait spins for a short time, yielding to ranks on the same core, then
// sleeps. No wakeup is lost: the sleeper stores `parked` and then reads the
// phases; the publisher stores its phase and then reads `parked`. Both are
// sequentially consistent, so one of them sees the other. A publisher wakes a
// sleeper only when all phases that it waits for are published: the last
// publisher sees that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/deadline.h"
#include "elasticdl/common/mutex.h"
#include "shm/segment.h"

namespace elasticdl::collective {

// Publish and the waits for phases are for the thread that runs the operations;
// any thread may call the rest.
class ShmWorld {
 public:
  ShmWorld(std::unique_ptr<ShmSegment> segment, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  ShmSegment& segment() { return *segment_; }

  // The last phase that this rank published.
  uint32_t phase() const { return phase_; }
  // Publishes the next phase. `op` must be the same on all ranks.
  void Publish(uint32_t op);

  // Waits until ranks [first, last) have published `phase`. ABORTED if the
  // world breaks first.
  absl::Status Wait(int first, int last, uint32_t phase, Deadline& deadline);
  // Waits until all have published `phase`, with the same operation.
  absl::Status WaitAllAt(uint32_t phase, Deadline& deadline);
  absl::Status WaitAll(Deadline& deadline) {
    return WaitAllAt(phase_, deadline);
  }
  // INTERNAL, and the world ends, if `rank` called another operation in `phase`
  // than this one.
  absl::Status CheckSameOp(int rank, uint32_t phase);

  // OK unless the world is broken.
  absl::Status Check();

  // Ends the world for all. The first reason is kept.
  void Abort(const absl::Status& why);
  // Returns when the world was aborted, by any member, or StopWaiting was
  // called. For one thread besides the one that runs the operations.
  void WaitForAbort();
  void StopWaiting();
  // The process of `rank` has ended: aborts unless it had left before.
  void MemberDied(int rank, const absl::Status& why);
  // This member takes no further part. Members that still need data from it get
  // ABORTED; what it has published stays readable.
  void Leave();

 private:
  bool Reached(int first, int last, uint32_t phase);
  bool SharesCore(int first, int last);
  bool SpinUntil(int first, int last, uint32_t phase);
  absl::Status SleepUntil(int first, int last, uint32_t phase,
                          Deadline& deadline);
  absl::Status WhyNot(int first, int last, uint32_t phase);
  absl::Status AbortedStatus();
  void Wake(int rank);
  void WakeAll();
  void SoundAlarm(int rank);

  const std::unique_ptr<ShmSegment> segment_;
  const int rank_;
  const int size_;
  // More members than cores: a waiting member must let others run.
  const bool crowded_;
  uint32_t phase_ = 0;

  Mutex mu_;
  // Why this member aborted, if it did.
  absl::Status own_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::collective
