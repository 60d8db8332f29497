#include "row_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "elasticdl/ps/bucket.h"

namespace elasticdl::ps {
namespace {

constexpr uint32_t kFirstIndex = 8;
// Half of the last slab of every bucket is empty on average.
constexpr size_t kSlabBytes = 8192;

}  // namespace

RowLayout RowLayout::Make(uint64_t table, size_t stride) {
  RowLayout layout;
  layout.table = table;
  layout.stride = stride;
  while ((stride << (layout.slab_shift + 1)) <= kSlabBytes) {
    ++layout.slab_shift;
  }
  return layout;
}

RowTable::~RowTable() { free(index_); }

const char* RowTable::Find(uint64_t hash, int64_t id,
                           const RowLayout& layout) const {
  if (index_capacity_ == 0) return nullptr;
  const uint32_t tag = TagOf(hash);
  for (uint32_t at = Home(hash);; at = Next(at)) {
    const uint32_t entry = index_[at];
    if (entry == 0) return nullptr;
    if ((entry & ~kRowMask) != tag) continue;
    const char* found = row((entry & kRowMask) - 1, layout);
    if (IdOf(found) == id) return found;
  }
}

char* RowTable::Add(uint64_t hash, int64_t id, const RowLayout& layout,
                    SlabArena& arena) {
  if (rows_ == kMaxRows) return nullptr;
  // A load of 0.85: linear probing with tags still ends within a cache line or
  // two, and the index stays below 8 bytes per row.
  if (uint64_t{rows_} * 20 >= uint64_t{index_capacity_} * 17 &&
      !GrowIndex(layout)) {
    return nullptr;
  }
  const size_t slab = rows_ >> layout.slab_shift;
  if (slab == slabs_.size()) {
    char* added = arena.Allocate();
    if (added == nullptr) return nullptr;
    slabs_.push_back(added);
  }
  Insert(hash, rows_);
  char* added = at(rows_++, layout);
  std::memcpy(added, &id, sizeof(id));
  return added;
}

void RowTable::Remove(absl::Span<const uint32_t> numbers,
                      const RowLayout& layout, SlabArena& arena) {
  if (numbers.empty()) return;
  // From the back, so that the last row is never one that goes.
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    --rows_;
    if (*it == rows_) continue;
    std::memcpy(at(*it, layout), at(rows_, layout), layout.stride);
  }
  const size_t slabs =
      (rows_ + (size_t{1} << layout.slab_shift) - 1) >> layout.slab_shift;
  for (; slabs_.size() > slabs; slabs_.pop_back()) arena.Free(slabs_.back());
  std::memset(index_, 0, index_capacity_ * sizeof(uint32_t));
  InsertAll(layout);
}

void RowTable::Clear(SlabArena& arena) {
  for (char* slab : slabs_) arena.Free(slab);
  slabs_ = {};
  free(index_);
  index_ = nullptr;
  index_capacity_ = 0;
  rows_ = 0;
}

void RowTable::Insert(uint64_t hash, uint32_t row) {
  uint32_t at = Home(hash);
  while (index_[at] != 0) at = Next(at);
  index_[at] = TagOf(hash) | (row + 1);
}

bool RowTable::GrowIndex(const RowLayout& layout) {
  // By half, so that at most 7 bytes per row are index.
  const uint32_t capacity =
      std::max(kFirstIndex, index_capacity_ + index_capacity_ / 2);
  void* grown = calloc(capacity, sizeof(uint32_t));
  if (grown == nullptr) return false;
  free(index_);
  index_ = static_cast<uint32_t*>(grown);
  index_capacity_ = capacity;
  InsertAll(layout);
  return true;
}

void RowTable::InsertAll(const RowLayout& layout) {
  for (uint32_t i = 0; i < rows_; ++i) {
    Insert(HashRow(layout.table, IdOf(row(i, layout))), i);
  }
}

}  // namespace elasticdl::ps
