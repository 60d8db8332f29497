#include "shm/world.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"

namespace elasticdl::collective {
namespace {

// Longer than a wakeup takes (about 50 us in a VM): else two ranks that once
// slept would go on putting each other to sleep.
constexpr int64_t kSpinNanos = 100000;
// About a microsecond between looks at the clock.
constexpr int kSpinsPerLook = 50;

int FutexWait(std::atomic<uint32_t>& word, uint32_t value, Deadline& deadline) {
  const timespec until = deadline.ToTimespec();
  // The bitset form takes a moment, not a span, of the monotonic clock.
  const auto result =
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET,
              value, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 ? 0 : errno;
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1, nullptr,
          nullptr, 0);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

// Phases wrap around.
bool AtLeast(uint32_t phase, uint32_t target) {
  return static_cast<int32_t>(phase - target) >= 0;
}

}  // namespace

ShmWorld::ShmWorld(std::unique_ptr<ShmSegment> segment, int rank, int size)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(size),
      crowded_(size > UsableCores()) {}

bool ShmWorld::Reached(int first, int last, uint32_t phase) {
  for (int rank = first; rank < last; ++rank) {
    if (!AtLeast(segment_->rank(rank).phase.load(), phase)) return false;
  }
  return true;
}

void ShmWorld::Publish(uint32_t op) {
  ShmRank& own = segment_->rank(rank_);
  ++phase_;
  own.op[phase_ % kShmDepth].store(uint64_t{phase_} << 32 | op,
                                   std::memory_order_relaxed);
  own.core.store(static_cast<uint32_t>(sched_getcpu()),
                 std::memory_order_relaxed);
  own.phase.store(phase_);
  for (int rank = 0; rank < size_; ++rank) {
    ShmRank& other = segment_->rank(rank);
    if (rank == rank_ || other.parked.load() == 0) continue;
    const int first = static_cast<int>(other.first.load());
    const int last = std::min(static_cast<int>(other.last.load()), size_);
    if (Reached(first, last, other.target.load())) Wake(rank);
  }
}

void ShmWorld::Wake(int rank) {
  ShmRank& other = segment_->rank(rank);
  if (other.parked.exchange(0) != 0) FutexWake(other.parked);
}

void ShmWorld::WakeAll() {
  for (int rank = 0; rank < size_; ++rank) Wake(rank);
}

// Whether one of the awaited ranks was last seen on this core: it cannot run
// while this rank spins.
bool ShmWorld::SharesCore(int first, int last) {
  const auto own = static_cast<uint32_t>(sched_getcpu());
  for (int rank = first; rank < last; ++rank) {
    if (rank == rank_) continue;
    if (segment_->rank(rank).core.load(std::memory_order_relaxed) == own) {
      return true;
    }
  }
  return false;
}

bool ShmWorld::SpinUntil(int first, int last, uint32_t phase) {
  const int64_t end = Deadline::Now() + kSpinNanos;
  do {
    if (crowded_ || SharesCore(first, last)) {
      if (Reached(first, last, phase)) return true;
      sched_yield();
      continue;
    }
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (Reached(first, last, phase)) return true;
      Pause();
    }
  } while (Deadline::Now() < end);
  return false;
}

absl::Status ShmWorld::Wait(int first, int last, uint32_t phase,
                            Deadline& deadline) {
  if (Reached(first, last, phase)) return absl::OkStatus();
  if (SpinUntil(first, last, phase)) return absl::OkStatus();
  return SleepUntil(first, last, phase, deadline);
}

absl::Status ShmWorld::SleepUntil(int first, int last, uint32_t phase,
                                  Deadline& deadline) {
  ShmRank& own = segment_->rank(rank_);
  own.target.store(phase);
  own.first.store(static_cast<uint32_t>(first));
  own.last.store(static_cast<uint32_t>(last));
  while (true) {
    own.parked.store(1);
    absl::Status status = WhyNot(first, last, phase);
    const bool reached = Reached(first, last, phase);
    if (reached || !status.ok()) {
      own.parked.store(0);
      if (reached) return absl::OkStatus();
      Abort(status);
      return status;
    }
    if (FutexWait(own.parked, 1, deadline) != ETIMEDOUT) continue;
    own.parked.store(0);
    if (Reached(first, last, phase)) return absl::OkStatus();
    status = Check();
    if (!status.ok()) return status;
    int late = first;
    while (late + 1 < last && Reached(late, late + 1, phase)) ++late;
    status = Blame(late, absl::DeadlineExceededError(absl::StrCat(
                             "rank ", rank_, " heard nothing from rank ", late,
                             " in time")));
    Abort(status);
    return status;
  }
}

// Whether there is a reason not to wait any longer. A rank that left may have
// published before: the caller looks at the phases once more after this.
absl::Status ShmWorld::WhyNot(int first, int last, uint32_t phase) {
  absl::Status status = Check();
  if (!status.ok()) return status;
  for (int rank = first; rank < last; ++rank) {
    if (segment_->rank(rank).left.load() != 0 &&
        !Reached(rank, rank + 1, phase)) {
      return Blame(rank, absl::AbortedError(
                             absl::StrCat("rank ", rank, " left the world")));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmWorld::WaitAllAt(uint32_t phase, Deadline& deadline) {
  absl::Status status = Wait(0, size_, phase, deadline);
  for (int rank = 0; status.ok() && rank < size_; ++rank) {
    status = CheckSameOp(rank, phase);
  }
  return status;
}

absl::Status ShmWorld::CheckSameOp(int rank, uint32_t phase) {
  const uint32_t slot = phase % kShmDepth;
  const uint64_t own =
      segment_->rank(rank_).op[slot].load(std::memory_order_relaxed);
  const uint64_t other =
      segment_->rank(rank).op[slot].load(std::memory_order_relaxed);
  // The other may have gone on, and this rank, too, when it looks ahead.
  if (own == other || own >> 32 != phase || other >> 32 != phase) {
    return absl::OkStatus();
  }
  absl::Status status =
      Blame(rank, absl::InternalError(absl::StrCat(
                      "rank ", rank, " called another operation, or with ",
                      "another size, than rank ", rank_)));
  Abort(status);
  return status;
}

absl::Status ShmWorld::Check() {
  if (segment_->header().aborted.load() == 0) return absl::OkStatus();
  return AbortedStatus();
}

absl::Status ShmWorld::AbortedStatus() {
  {
    MutexLock lock(mu_);
    if (!own_.ok()) return own_;
  }
  ShmHeader& header = segment_->header();
  if (header.aborted.load() != 2) {
    return absl::AbortedError("a member aborted the world");
  }
  return Blame(header.blamed_rank,
               absl::AbortedError(std::string(
                   header.reason, strnlen(header.reason, kShmReasonBytes))));
}

void ShmWorld::Abort(const absl::Status& why) {
  {
    MutexLock lock(mu_);
    if (own_.ok()) own_ = AsAborted(why);
  }
  ShmHeader& header = segment_->header();
  uint32_t fine = 0;
  if (header.aborted.compare_exchange_strong(fine, 1)) {
    const size_t bytes = std::min(why.message().size(), kShmReasonBytes - 1);
    std::memcpy(header.reason, why.message().data(), bytes);
    header.blamed_rank = BlamedRank(why);
    header.aborted.store(2);
  }
  WakeAll();
  for (int rank = 0; rank < size_; ++rank) SoundAlarm(rank);
}

void ShmWorld::SoundAlarm(int rank) {
  std::atomic<uint32_t>& alarm = segment_->rank(rank).alarm;
  alarm.store(1);
  FutexWake(alarm);
}

void ShmWorld::WaitForAbort() {
  Deadline never(absl::InfiniteDuration());
  std::atomic<uint32_t>& alarm = segment_->rank(rank_).alarm;
  while (alarm.load() == 0) FutexWait(alarm, 0, never);
}

void ShmWorld::StopWaiting() { SoundAlarm(rank_); }

void ShmWorld::MemberDied(int rank, const absl::Status& why) {
  if (segment_->rank(rank).left.load() == 0) Abort(why);
}

void ShmWorld::Leave() {
  segment_->rank(rank_).left.store(1);
  WakeAll();
}

}  // namespace elasticdl::collective
