#include "row_table.h"

#include <cstring>

namespace elasticdl::ps {
namespace {

// Half of the last slab of every bucket is empty on average.
constexpr size_t kSlabBytes = 8192;

}  // namespace

RowLayout RowLayout::Make(size_t stride) {
  RowLayout layout;
  layout.stride = stride;
  while ((stride << (layout.slab_shift + 1)) <= kSlabBytes) {
    ++layout.slab_shift;
  }
  return layout;
}

char* RowTable::Add(uint64_t hash, const RowLayout& layout, RowArenas& arenas) {
  const size_t slab = rows_ >> layout.slab_shift;
  if (slab == slabs_.size()) {
    char* added = arenas.rows.Allocate();
    if (added == nullptr) return nullptr;
    slabs_.push_back(added);
  }
  if (!index_.Insert(hash, rows_, arenas.index)) return nullptr;
  return at(rows_++, layout);
}

void RowTable::Remove(absl::Span<const uint32_t> numbers,
                      const RowLayout& layout, RowArenas& arenas) {
  if (numbers.empty()) return;
  std::vector<uint64_t> hashes(rows_);
  index_.ForEach([&](uint64_t hash, uint32_t i) { hashes[i] = hash; });
  // From the back, so that the last row is never one that goes.
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    --rows_;
    if (*it == rows_) continue;
    std::memcpy(at(*it, layout), at(rows_, layout), layout.stride);
    hashes[*it] = hashes[rows_];
  }
  const size_t slabs =
      (rows_ + (size_t{1} << layout.slab_shift) - 1) >> layout.slab_shift;
  for (; slabs_.size() > slabs; slabs_.pop_back())
    arenas.rows.Free(slabs_.back());
  index_.Reset();
  // Fewer than before: they find their places.
  for (uint32_t i = 0; i < rows_; ++i)
    index_.Insert(hashes[i], i, arenas.index);
}

void RowTable::Clear(RowArenas& arenas) {
  for (char* slab : slabs_) arenas.rows.Free(slab);
  slabs_ = {};
  index_.Clear(arenas.index);
  rows_ = 0;
}

}  // namespace elasticdl::ps
