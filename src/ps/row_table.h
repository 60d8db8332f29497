// The rows of one embedding table in one bucket: found by the hash of their id,
// stored in slabs.
#pragma once

#include <atomic>
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
  // Atomic: several threads may add rows, each to buckets of its own.
  // RowTable::BytesFor of all buckets together.
  std::atomic<size_t> bytes = 0;
  // Grows whenever rows have moved to another piece of memory.
  std::atomic<uint64_t> moves = 0;
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

// Rows lie in slabs. While they fill less than half of one, they lie in a
// smaller piece of memory: a model may have hundreds of tables with a few rows
// in each bucket.
//
// Thread-compatible. Rows keep their numbers until Remove, and their addresses
// until RowArenas::moves grows.
class RowTable {
 public:
  static constexpr uint32_t kMaxRows = RowIndex::kMaxRows;
  static constexpr uint32_t kNoRow = RowIndex::kNone;
  static constexpr uint32_t kFurther = RowIndex::kFurther;

  RowTable() = default;
  ~RowTable();
  RowTable(const RowTable&) = delete;
  RowTable& operator=(const RowTable&) = delete;

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
  void Clear(const RowLayout& layout, RowArenas& arenas);

  const RowIndex& index() const { return index_; }
  // Before many rows are added: the index need not grow step by step.
  void Reserve(uint64_t rows, RowArenas& arenas) {
    index_.Reserve(rows, arenas.index);
  }
  // What row(i) reads before the row itself.
  void PrefetchSlab(uint32_t i, const RowLayout& layout) const {
    __builtin_prefetch(slabs_.data() + (i >> layout.slab_shift));
  }

  // Memory of so many rows, without what their index takes per row. Follows
  // from the number alone, so that two servers with the same rows agree on it.
  static size_t BytesFor(uint32_t rows, const RowLayout& layout);
  // Of that, in slabs.
  static size_t SlabBytesFor(uint32_t rows, const RowLayout& layout);

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
  // For one more. False: no memory.
  bool MakeRoom(const RowLayout& layout, RowArenas& arenas);
  // Puts the rows of the first slab into another piece of memory, with room for
  // so many: a slab's, or fewer.
  bool Resize(uint32_t room, const RowLayout& layout, RowArenas& arenas);
  void FreeFirst(RowArenas& arenas);

  RowIndex index_;
  uint32_t rows_ = 0;
  // The first slab is a smaller piece of memory.
  bool small_ = false;
  std::vector<char*> slabs_;
};

}  // namespace elasticdl::ps
