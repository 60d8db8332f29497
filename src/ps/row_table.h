// The rows of one embedding table in one bucket: found by id, stored in slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "slab_arena.h"

namespace elasticdl::ps {

// What all buckets of a table share. A row starts with its id; what follows is
// the owner's.
struct RowLayout {
  // Of the table's name: rows are hashed again when an index grows.
  uint64_t table = 0;
  // Bytes of a row, id included; a multiple of 8.
  size_t stride = 0;
  // Rows of a slab: 1 << slab_shift.
  int slab_shift = 0;

  // Slabs of at most 8 KiB, unless a row is larger.
  static RowLayout Make(uint64_t table, size_t stride);
  size_t slab_bytes() const { return stride << slab_shift; }
};

// Thread-compatible. Rows move only by Remove.
class RowTable {
 public:
  // Rows of one bucket, at most: the index has 24 bits for a row's number.
  static constexpr uint32_t kMaxRows = (1u << 24) - 2;

  RowTable() = default;
  ~RowTable();
  RowTable(const RowTable&) = delete;
  RowTable& operator=(const RowTable&) = delete;

  // `layout` is the same in every call. `hash`: HashRow of the id.
  const char* Find(uint64_t hash, int64_t id, const RowLayout& layout) const;
  char* Find(uint64_t hash, int64_t id, const RowLayout& layout) {
    return const_cast<char*>(
        static_cast<const RowTable*>(this)->Find(hash, id, layout));
  }
  // A new row with this id, which must not be there; what follows the id is
  // not set. Null: no memory, or kMaxRows are there.
  char* Add(uint64_t hash, int64_t id, const RowLayout& layout,
            SlabArena& arena);

  // Removes the rows of these numbers, which ascend; the last rows take their
  // places.
  void Remove(absl::Span<const uint32_t> numbers, const RowLayout& layout,
              SlabArena& arena);
  // Removes all rows.
  void Clear(SlabArena& arena);

  // What Find reads first.
  void PrefetchIndex(uint64_t hash) const {
    if (index_capacity_ > 0) __builtin_prefetch(index_ + Home(hash));
  }
  // A good guess of the row that Find returns, from the index alone: its
  // number, or kNoRow for sure when there is none.
  static constexpr uint32_t kNoRow = ~0u;
  uint32_t Guess(uint64_t hash) const {
    if (index_capacity_ == 0) return kNoRow;
    const uint32_t tag = TagOf(hash);
    for (uint32_t at = Home(hash);; at = Next(at)) {
      const uint32_t entry = index_[at];
      if (entry == 0) return kNoRow;
      if ((entry & ~kRowMask) == tag) return (entry & kRowMask) - 1;
    }
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
  static int64_t IdOf(const char* row) {
    int64_t id = 0;
    __builtin_memcpy(&id, row, sizeof(id));
    return id;
  }
  // Memory beside the slabs.
  size_t index_bytes() const {
    return index_capacity_ * sizeof(uint32_t) +
           slabs_.capacity() * sizeof(char*);
  }

 private:
  static constexpr uint32_t kRowMask = (1u << 24) - 1;

  uint32_t Home(uint64_t hash) const {
    return static_cast<uint32_t>(
        (uint64_t{static_cast<uint32_t>(hash)} * index_capacity_) >> 32);
  }
  static uint32_t TagOf(uint64_t hash) {
    return static_cast<uint32_t>(hash >> 46) << 24;
  }
  uint32_t Next(uint32_t at) const {
    return at + 1 == index_capacity_ ? 0 : at + 1;
  }
  char* at(uint32_t i, const RowLayout& layout) {
    return const_cast<char*>(row(i, layout));
  }
  void Insert(uint64_t hash, uint32_t row);
  void InsertAll(const RowLayout& layout);
  bool GrowIndex(const RowLayout& layout);

  // 0, or 8 bits of the hash and the row's number + 1.
  uint32_t* index_ = nullptr;
  uint32_t index_capacity_ = 0;
  uint32_t rows_ = 0;
  std::vector<char*> slabs_;
};

}  // namespace elasticdl::ps
