// Memory for rows: slabs of one size, cut from large pieces that the kernel may
// back with huge pages, which makes random access much cheaper.
#pragma once

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
  void Free(char* slab) { free_.push_back(slab); }

 private:
  struct Piece {
    void* data;
    size_t bytes;
  };
  bool AddPiece();

  const size_t slab_bytes_;
  std::vector<Piece> pieces_;
  std::vector<char*> free_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace elasticdl::ps
