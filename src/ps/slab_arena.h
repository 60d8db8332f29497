// Memory for rows: slabs of one size, cut from large pieces that the kernel may
// back with huge pages, which makes random access much cheaper.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "elasticdl/common/mutex.h"

namespace elasticdl::ps {

constexpr size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Thread-safe: several threads fill a table when a server starts. Memory goes
// back to the kernel with the arena.
class SlabArena {
 public:
  explicit SlabArena(size_t slab_bytes) : slab_bytes_(slab_bytes) {}
  ~SlabArena();
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  // At a multiple of 8. Null: no memory. `*zeros`: nobody has had it before, so
  // it has nothing but zeros.
  char* Allocate(bool* zeros = nullptr);
  // For the next Allocate.
  void Free(char* slab) {
    MutexLock lock(mu_);
    free_.push_back(slab);
    used_bytes_ -= slab_bytes_;
  }
  size_t used_bytes() const { return used_bytes_; }

  // The kernel gives memory in huge pages: of the last one, so much is not
  // used if so much of all is.
  static size_t Rest(size_t used_bytes) {
    return RoundUp(used_bytes, kHugePage) - used_bytes;
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Piece {
    void* data;
    size_t bytes;
  };
  bool AddPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t slab_bytes_;
  std::atomic<size_t> used_bytes_ = 0;
  Mutex mu_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mu_);
  std::vector<char*> free_ ABSL_GUARDED_BY(mu_);
  char* next_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl::ps
