// The memory that the members of one world on one host share.
//
// It is a memfd, opened by the others through /proc/<pid>/fd: it has no name,
// so nothing is left behind however its users die, and it does not count
// against /dev/shm, which containers keep at 64 MB.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::collective {

// So many of a rank's last operations are remembered. Only the root of a
// broadcast runs further ahead of others; these then do not check it.
constexpr uint32_t kShmDepth = 4;
// One pair of cache lines: the hardware fetches lines in pairs.
constexpr size_t kShmLine = 128;

// One rank's words. The first group is written by its owner only, the second
// by its owner and by whoever wakes it. All are 0 at first.
struct ShmRank {
  // The last phase that the owner published.
  alignas(kShmLine) std::atomic<uint32_t> phase;
  // What the owner was doing in its last phases, so that members that do not
  // do the same are noticed: the phase in the upper half, the operation in the
  // lower.
  std::atomic<uint64_t> op[kShmDepth];
  // Where the owner ran when it published.
  std::atomic<uint32_t> core;
  // 1 once the owner has left for good.
  std::atomic<uint32_t> left;

  // 1 while the owner sleeps or is about to; its futex.
  alignas(kShmLine) std::atomic<uint32_t> parked;
  // What it sleeps for: ranks [first, last) to publish phase `target`.
  std::atomic<uint32_t> target;
  std::atomic<uint32_t> first;
  std::atomic<uint32_t> last;
  // 1 once the world has ended or nobody need wait for that any more; a futex.
  std::atomic<uint32_t> alarm;
};

constexpr size_t kShmIdBytes = 16;
constexpr size_t kShmReasonBytes = 256;

struct ShmHeader {
  // Random; proves that this is the segment that the offer meant.
  char id[kShmIdBytes];
  int64_t generation;
  uint32_t size;
  uint32_t part_bytes;
  // 0: fine; 1: aborted, `reason` is being written; 2: it is written.
  alignas(kShmLine) std::atomic<uint32_t> aborted;
  char reason[kShmReasonBytes];
  // Whom the reason blames; -1 = nobody. Written with it.
  int32_t blamed_rank;
};

// Thread-compatible; what lies in it is shared and atomic where it must be.
class ShmSegment {
 public:
  struct Shape {
    int64_t generation = 0;
    int size = 0;
    size_t part_bytes = 0;
  };

  // Makes a new one. `fd` stays open, for the others, until CloseFd.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Create(
      const Shape& shape, const std::string& id);
  // Maps the one that process `pid` has open as `fd`.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Attach(
      const Shape& shape, const std::string& id, int pid, int fd);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int fd() const { return fd_.get(); }
  void CloseFd() { fd_.Reset(); }

  ShmHeader& header() { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmRank& rank(int rank) { return ranks_[rank]; }
  // The memory that `rank` writes and the others read.
  char* part(int rank) {
    return parts_ + static_cast<size_t>(rank) * part_bytes_;
  }

 private:
  ShmSegment(Fd fd, char* base, const Shape& shape);
  static absl::StatusOr<char*> Map(int fd, const Shape& shape);

  Fd fd_;
  char* const base_;
  const size_t bytes_;
  const size_t part_bytes_;
  ShmRank* const ranks_;
  char* const parts_;
};

}  // namespace elasticdl::collective
