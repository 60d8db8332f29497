// How members wait for each other through shared memory.
//
// Each rank counts *phases*. In phase k it may put data into its part of the
// memory and then publishes k. Publishing k says, in all operations: my data of
// k is there, and I have finished reading all data of phases <= k - 2. So a
// rank may publish k + 1 before it reads k, and memory is written again when
// all have published the phase after the next (SlotRing).
//
// Waiting is a short spin, which gives way to ranks on the same core, then a
// sleep. No
// wakeup is lost: the sleeper stores `parked` and then looks at the phases; the
// publisher stores its phase and then looks at `parked`; both sequentially
// consistent, so one of them sees the other. A publisher wakes a sleeper only
// when all that it waits for is there: the last one that publishes sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/deadline.h"
#include "elasticdl/common/mutex.h"
#include "shm/segment.h"

namespace elasticdl::collective {

// Publish and the waits for phases belong to the thread that runs the
// operations; the rest is for any thread.
class ShmWorld {
 public:
  ShmWorld(std::unique_ptr<ShmSegment> segment, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  ShmSegment& segment() { return *segment_; }

  // The last phase that this rank published.
  uint32_t phase() const { return phase_; }
  // Goes on to the next phase. `op` must be the same at all.
  void Publish(uint32_t op);

  // Until ranks [first, last) have published `phase`. ABORTED when the world is
  // broken before they have.
  absl::Status Wait(int first, int last, uint32_t phase, Deadline& deadline);
  // Until all have published `phase`, with the same operation.
  absl::Status WaitAllAt(uint32_t phase, Deadline& deadline);
  absl::Status WaitAll(Deadline& deadline) {
    return WaitAllAt(phase_, deadline);
  }
  // INTERNAL, and the end of the world, when `rank` did another operation in
  // `phase` than this one.
  absl::Status CheckSameOp(int rank, uint32_t phase);

  // OK unless the world is broken.
  absl::Status Check();

  // Ends the world for all. The first reason is kept.
  void Abort(const absl::Status& why);
  // Returns when the world has been aborted, by whomever, or StopWaiting was
  // called. For one thread besides the one that runs the operations.
  void WaitForAbort();
  void StopWaiting();
  // The process of `rank` has ended: aborts unless it had left before.
  void MemberDied(int rank, const absl::Status& why);
  // This member takes part no more. Members that still need something of it
  // get ABORTED; what it has published stays readable.
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
  // More members than cores: whoever waits must let others run.
  const bool crowded_;
  uint32_t phase_ = 0;

  Mutex mu_;
  // Why this member aborted, if it did.
  absl::Status own_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::collective
