// The memory that the members of one world on one host share.
//
// It is a memfd that the others open through /proc/<pid>/fd. It has no name, so
// nothing is left behind however its users die, and it does not count against
// /dev/shm, which has only 64 MB in containers.
//
// It has several *areas*. The first one is for the world that it was made for.
// When members of that world die, the others go on in the next area: all have
// mapped it already, and nobody who is still in the area before can write to
// it. Memory that nobody has touched costs nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::collective {

// How many of a rank's last operations are remembered. Only the root of a
// broadcast can be further ahead of others; they do not check it then.
constexpr uint32_t kShmDepth = 4;
// Two cache lines: the hardware fetches lines in pairs.
constexpr size_t kShmLine = 128;

// One rank's words. The first group is written by its owner only, the second
// by its owner and by whoever wakes it. All are 0 at first.
struct ShmRank {
  // The last phase that the owner published.
  alignas(kShmLine) std::atomic<uint32_t> phase;
  // The owner's operations in its last phases, to detect members that call
  // different ones: the phase in the upper half, the operation in the lower.
  std::atomic<uint64_t> op[kShmDepth];
  // The core on which the owner published.
  std::atomic<uint32_t> core;
  // 1 once the owner has left for good.
  std::atomic<uint32_t> left;

  // 1 while the owner sleeps or is about to sleep; a futex.
  alignas(kShmLine) std::atomic<uint32_t> parked;
  // What it waits for: ranks [first, last) to publish phase `target`.
  std::atomic<uint32_t> target;
  std::atomic<uint32_t> first;
  std::atomic<uint32_t> last;
  // 1 when the world has ended or StopWaiting was called; a futex.
  std::atomic<uint32_t> alarm;
};

constexpr size_t kShmIdBytes = 16;
constexpr size_t kShmReasonBytes = 256;

struct ShmHeader {
  // Random; shows that this is the segment of the offer.
  char id[kShmIdBytes];
  // Of the world that uses this area; 0 = none yet.
  std::atomic<int64_t> generation;
  // Of the first area.
  uint32_t size;
  uint32_t part_bytes;
  uint32_t areas;
  // 0: not aborted; 1: `reason` is being written; 2: `reason` is complete.
  alignas(kShmLine) std::atomic<uint32_t> aborted;
  char reason[kShmReasonBytes];
  // Whom the reason blames; -1 = nobody. Written with it.
  int32_t blamed_rank;
};

// All areas, mapped.
struct ShmMapping {
  ShmMapping(Fd fd, char* base, size_t bytes)
      : fd(std::move(fd)), base(base), bytes(bytes) {}
  ~ShmMapping();
  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  Fd fd;
  char* const base;
  const size_t bytes;
};

// One area. Thread-compatible; the shared fields are atomic where necessary.
class ShmSegment {
 public:
  struct Shape {
    int64_t generation = 0;
    int size = 0;
    size_t part_bytes = 0;
  };

  // Creates a segment, with several areas if `may_shrink` and the limits of
  // this process allow it. `fd` stays open for the others until CloseFd.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Create(
      const Shape& shape, const std::string& id, bool may_shrink);
  // Maps the one that process `pid` has open as `fd`.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Attach(
      const Shape& shape, const std::string& id, int pid, int fd);
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // The next area, for a world of at most as many members. ABORTED if a world
  // of another generation has it, FAILED_PRECONDITION if there is none.
  absl::StatusOr<std::unique_ptr<ShmSegment>> Next(int64_t generation);
  bool HasNext() const { return area_ + 1 < areas_; }

  int fd() const { return mapping_->fd.get(); }
  void CloseFd() { mapping_->fd.Reset(); }

  ShmHeader& header() { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmRank& rank(int rank) { return ranks_[rank]; }
  // The memory that `rank` writes and the others read.
  char* part(int rank) {
    return parts_ + static_cast<size_t>(rank) * shape_.part_bytes;
  }
  size_t part_bytes() const { return shape_.part_bytes; }

 private:
  ShmSegment(std::shared_ptr<ShmMapping> mapping, const Shape& shape,
             uint32_t area, uint32_t areas);
  static absl::StatusOr<std::shared_ptr<ShmMapping>> Map(Fd fd, size_t bytes);

  const std::shared_ptr<ShmMapping> mapping_;
  // Of the first area; all have the same layout.
  const Shape shape_;
  const uint32_t area_;
  const uint32_t areas_;
  char* const base_;
  ShmRank* const ranks_;
  char* const parts_;
};

}  // namespace elasticdl::collective
