#include "row_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace elasticdl::ps {
namespace {

// Half of the last slab of every bucket is empty on average.
constexpr size_t kSlabBytes = 8192;
// Values begin at the boundary of a line if their size allows.
constexpr size_t kLineBytes = 64;
// Of a bucket that has rows: its smallest index, the addresses of slabs, and
// what malloc needs for them.
constexpr size_t kBucketBytes = 256;

// The least power of 2 that is not below it.
uint32_t RoomFor(uint32_t rows) {
  return rows <= 1 ? rows : 1u << (32 - __builtin_clz(rows - 1));
}

}  // namespace

RowLayout RowLayout::Make(size_t stride) {
  RowLayout layout;
  layout.stride = stride;
  while ((stride << (layout.slab_shift + 1)) <= kSlabBytes) {
    ++layout.slab_shift;
  }
  return layout;
}

RowTable::~RowTable() {
  // The arena keeps the others.
  if (small_) free(slabs_[0]);
}

size_t RowTable::BytesFor(uint32_t rows, const RowLayout& layout) {
  if (rows == 0) return 0;
  const uint32_t in_slab = 1u << layout.slab_shift;
  const size_t room = rows < in_slab ? RoomFor(rows) : RoundUp(rows, in_slab);
  return kBucketBytes + room * layout.stride;
}

size_t RowTable::SlabBytesFor(uint32_t rows, const RowLayout& layout) {
  const uint32_t in_slab = 1u << layout.slab_shift;
  return RoomFor(rows) < in_slab ? 0 : RoundUp(rows, in_slab) * layout.stride;
}

void RowTable::FreeFirst(RowArenas& arenas) {
  if (small_) {
    free(slabs_[0]);
  } else {
    arenas.rows.Free(slabs_[0]);
  }
  small_ = false;
}

bool RowTable::Resize(uint32_t room, const RowLayout& layout,
                      RowArenas& arenas) {
  const bool small = room < 1u << layout.slab_shift;
  char* const piece =
      small ? static_cast<char*>(aligned_alloc(
                  kLineBytes, RoundUp(room * layout.stride, kLineBytes)))
            : arenas.rows.Allocate();
  if (piece == nullptr) return false;
  if (slabs_.empty()) {
    slabs_.push_back(piece);
  } else {
    std::memcpy(piece, slabs_[0], rows_ * layout.stride);
    FreeFirst(arenas);
    slabs_[0] = piece;
    ++arenas.moves;
  }
  small_ = small;
  return true;
}

bool RowTable::MakeRoom(const RowLayout& layout, RowArenas& arenas) {
  const uint32_t in_slab = 1u << layout.slab_shift;
  if (rows_ < in_slab) {
    // A slab has all the room that there can be.
    const bool full = slabs_.empty() || (small_ && rows_ == RoomFor(rows_));
    return !full || Resize(RoomFor(rows_ + 1), layout, arenas);
  }
  if (rows_ >> layout.slab_shift < slabs_.size()) return true;
  char* const added = arenas.rows.Allocate();
  if (added == nullptr) return false;
  slabs_.push_back(added);
  return true;
}

char* RowTable::Add(uint64_t hash, const RowLayout& layout, RowArenas& arenas) {
  if (!MakeRoom(layout, arenas)) return nullptr;
  if (!index_.Insert(hash, rows_, arenas.index)) return nullptr;
  const size_t before = BytesFor(rows_, layout);
  const size_t after = BytesFor(rows_ + 1, layout);
  // Seldom; other threads change it, too.
  if (after != before) arenas.bytes += after - before;
  return at(rows_++, layout);
}

void RowTable::Remove(absl::Span<const uint32_t> numbers,
                      const RowLayout& layout, RowArenas& arenas) {
  if (numbers.empty()) return;
  const size_t before = BytesFor(rows_, layout);
  std::vector<uint64_t> hashes(rows_);
  index_.ForEach([&](uint64_t hash, uint32_t i) { hashes[i] = hash; });
  // From the back, so that the last row is never one that goes.
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    --rows_;
    if (*it == rows_) continue;
    std::memcpy(at(*it, layout), at(rows_, layout), layout.stride);
    hashes[*it] = hashes[rows_];
  }
  const uint32_t in_slab = 1u << layout.slab_shift;
  const size_t slabs = RoundUp(rows_, in_slab) >> layout.slab_shift;
  for (; slabs_.size() > std::max<size_t>(1, slabs); slabs_.pop_back()) {
    arenas.rows.Free(slabs_.back());
  }
  if (rows_ == 0) {
    FreeFirst(arenas);
    slabs_ = {};
  } else if (rows_ <= in_slab / 2) {
    // Without memory for it, they stay where they are.
    Resize(RoomFor(rows_), layout, arenas);
  }
  arenas.bytes -= before - BytesFor(rows_, layout);
  index_.Reset();
  // Fewer than before: they find their places.
  for (uint32_t i = 0; i < rows_; ++i)
    index_.Insert(hashes[i], i, arenas.index);
}

void RowTable::Clear(const RowLayout& layout, RowArenas& arenas) {
  arenas.bytes -= BytesFor(rows_, layout);
  for (; slabs_.size() > 1; slabs_.pop_back()) {
    arenas.rows.Free(slabs_.back());
  }
  if (!slabs_.empty()) FreeFirst(arenas);
  slabs_ = {};
  index_.Clear(arenas.index);
  rows_ = 0;
}

}  // namespace elasticdl::ps
