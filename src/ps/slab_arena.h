// Memory for rows: slabs of one size, cut from large pieces that the kernel may
// back with huge pages, which makes random access much cheaper.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace elasticdl::ps {

constexpr size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Thread-compatible. Memory goes back to the kernel with the arena.
class SlabArena {
 public:
  explicit SlabArena(size_t slab_bytes) : slab_bytes_(slab_bytes) {}
  ~SlabArena();
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  // At a multiple of 8. Null: no memory.
  char* Allocate();
  // For the next Allocate.
  void Free(char* slab) {
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
  bool AddPiece();

  const size_t slab_bytes_;
  std::vector<Piece> pieces_;
  std::vector<char*> free_;
  std::atomic<size_t> used_bytes_ = 0;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace elasticdl::ps
