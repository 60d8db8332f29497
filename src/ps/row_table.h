// The rows of one embedding table in one bucket: found by the hash of their id,
// stored in slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "row_index.h"
#include "slab_arena.h"

namespace elasticdl::ps {

// What all buckets of a table share.
struct RowArenas {
  explicit RowArenas(size_t slab_bytes)
      : rows(slab_bytes), index(RowIndex::kPageBytes) {}
  SlabArena rows;
  SlabArena index;
};

struct RowLayout {
  // Bytes of a row; a multiple of 8.
  size_t stride = 0;
  // Rows of a slab: 1 << slab_shift.
  int slab_shift = 0;

  // Slabs of at most 8 KiB, unless a row is larger.
  static RowLayout Make(size_t stride);
  size_t slab_bytes() const { return stride << slab_shift; }
};

// Thread-compatible. Rows move only by Remove.
class RowTable {
 public:
  static constexpr uint32_t kMaxRows = RowIndex::kMaxRows;
  static constexpr uint32_t kNoRow = RowIndex::kNone;
  static constexpr uint32_t kFurther = RowIndex::kFurther;

  // `layout` is the same in every call; `hash`: HashRow of the id.
  const char* Find(uint64_t hash, const RowLayout& layout) const {
    const uint32_t number = index_.Find(hash);
    return number == kNoRow ? nullptr : row(number, layout);
  }
  char* Find(uint64_t hash, const RowLayout& layout) {
    return const_cast<char*>(
        static_cast<const RowTable*>(this)->Find(hash, layout));
  }
  // A new row, which must not be there; its bytes are not set. Null: no memory,
  // or kMaxRows are there.
  char* Add(uint64_t hash, const RowLayout& layout, RowArenas& arenas);

  // Removes the rows of these numbers, which ascend; the last rows take their
  // places.
  void Remove(absl::Span<const uint32_t> numbers, const RowLayout& layout,
              RowArenas& arenas);
  // Removes all rows.
  void Clear(RowArenas& arenas);

  const RowIndex& index() const { return index_; }
  // Before many rows are added: the index need not grow step by step.
  void Reserve(uint64_t rows, RowArenas& arenas) {
    index_.Reserve(rows, arenas.index);
  }
  // What row(i) reads before the row itself.
  void PrefetchSlab(uint32_t i, const RowLayout& layout) const {
    __builtin_prefetch(slabs_.data() + (i >> layout.slab_shift));
  }

  uint32_t rows() const { return rows_; }
  const char* row(uint32_t i, const RowLayout& layout) const {
    const uint32_t mask = (1u << layout.slab_shift) - 1;
    return slabs_[i >> layout.slab_shift] + (i & mask) * layout.stride;
  }
  // Memory beside the slabs.
  size_t index_bytes() const {
    return index_.bytes() + slabs_.capacity() * sizeof(char*);
  }

 private:
  char* at(uint32_t i, const RowLayout& layout) {
    return const_cast<char*>(row(i, layout));
  }

  RowIndex index_;
  uint32_t rows_ = 0;
  std::vector<char*> slabs_;
};

}  // namespace elasticdl::ps
