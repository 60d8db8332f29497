#include "slab_arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace elasticdl::ps {
namespace {

// Each piece is a mapping, of which a process may have some ten thousands.
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

SlabArena::~SlabArena() {
  MutexLock lock(mu_);
  for (const Piece& piece : pieces_) munmap(piece.data, piece.bytes);
}

char* SlabArena::Allocate(bool* zeros) {
  MutexLock lock(mu_);
  if (zeros != nullptr) *zeros = free_.empty();
  if (!free_.empty()) {
    char* slab = free_.back();
    free_.pop_back();
    used_bytes_ += slab_bytes_;
    return slab;
  }
  if (left_ < slab_bytes_ && !AddPiece()) return nullptr;
  used_bytes_ += slab_bytes_;
  char* slab = next_;
  next_ += slab_bytes_;
  left_ -= slab_bytes_;
  return slab;
}

bool SlabArena::AddPiece() {
  // As much as there is already, so that a small table takes little and a large
  // one few pieces.
  size_t total = 0;
  for (const Piece& piece : pieces_) total += piece.bytes;
  const size_t bytes =
      RoundUp(std::max(slab_bytes_, std::clamp(total, kHugePage, kMostBytes)),
              kHugePage);
  // One page more, so that the piece can begin at a huge page's boundary.
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  pieces_.push_back({mapped, bytes + kHugePage});
  auto* begin = static_cast<char*>(mapped);
  begin +=
      (kHugePage - reinterpret_cast<size_t>(begin) % kHugePage) % kHugePage;
  // A wish: without it everything works, slower.
  madvise(begin, bytes, MADV_HUGEPAGE);
  next_ = begin;
  left_ = bytes;
  return true;
}

}  // namespace elasticdl::ps
