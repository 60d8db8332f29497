// Finds the rows of one embedding table in one bucket by the hash of their id.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elasticdl/ps/bucket.h"
#include "slab_arena.h"

namespace elasticdl::ps {

// From hashes to the numbers of rows. Neither the index nor the rows have the
// ids: no two ids of a table have the same hash, the place of an entry tells
// the upper bits of the hash, and the entry has the others. So a lookup reads
// one line of the cache and then nothing but what it wants of the row.
//
// A line has 8 entries of 8 bytes, those that are free at its end. The hash
// tells which line is an entry's home; when that is full, it is in one of the
// next. With k = log2(lines), rounded down, an entry has from its uppermost bit
// on:
//
//   rest of the hash       54 - k bits
//   lines from its home         6
//   number of the row + 1   k + 4
//
// Entries are in the order of their hashes ("Robin Hood" hashing), but for
// those that found no place at the end and are at the beginning: what ForEach
// sees first does not depend on how the rows came to be.
//
// Lines lie in pages of 8 KiB from an arena with huge pages: random access to
// small pages costs as much as the rest of a lookup. An index that needs less
// than four has one piece of memory of that size.
//
// Thread-compatible. The bucket's bits of a hash do not matter.
class RowIndex {
 public:
  // Of the arena, which is the same in every call.
  static constexpr size_t kPageBytes = size_t{8} << 10;
  static constexpr uint32_t kNone = ~0u;
  // FindAtHome: not there, but a line behind it may have it.
  static constexpr uint32_t kFurther = kNone - 1;
  // A row number must be below this.
  static constexpr uint32_t kMaxRows = (1u << 24) - 2;

  RowIndex() = default;
  // The arena keeps its pages.
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // The number of the row with this hash, or kNone.
  uint32_t Find(uint64_t hash) const {
    if (lines_ == 0) return kNone;
    const Home home = HomeOf(hash);
    uint64_t key = home.rest << (kDistanceBits + number_bits_);
    const uint64_t most = uint64_t{1} << number_bits_;
    for (size_t line = home.line;; line = Next(line)) {
      const uint64_t* const entries = Line(line);
      const uint64_t number = Match(entries, key);
      if (number != 0) return static_cast<uint32_t>(number) - 1;
      // Those behind the last one are not before it, either.
      const uint64_t last = entries[kEntries - 1];
      if (last == 0 || DistanceOf(last) < DistanceOf(key)) return kNone;
      if (DistanceOf(key) == kMostDistance) return kNone;
      key += most;
    }
  }
  // Find in the first line only. When others are to be read, the next of them
  // is on its way to the cache.
  uint32_t FindAtHome(uint64_t hash) const {
    if (lines_ == 0) return kNone;
    const Home home = HomeOf(hash);
    const uint64_t* const entries = Line(home.line);
    const uint64_t number =
        Match(entries, home.rest << (kDistanceBits + number_bits_));
    if (number != 0) return static_cast<uint32_t>(number) - 1;
    if (entries[kEntries - 1] == 0) return kNone;
    __builtin_prefetch(Line(Next(home.line)));
    return kFurther;
  }
  // What FindAtHome reads.
  void Prefetch(uint64_t hash) const {
    if (lines_ > 0) __builtin_prefetch(Line(HomeOf(hash).line));
  }

  // `number` is how many rows there are, and `hash` must not be there. False:
  // there is no memory, or no place for it; nothing has changed then.
  bool Insert(uint64_t hash, uint32_t number, SlabArena& arena);
  // Makes room for so many rows at once. False: no memory.
  bool Reserve(uint64_t rows, SlabArena& arena);
  // Forgets all rows; keeps its memory.
  void Reset();
  // Forgets all rows and gives its memory back.
  void Clear(SlabArena& arena);

  // visit(hash without the bucket's bits, number), for all rows by ascending
  // hash. Allocates nothing.
  template <typename F>
  void ForEach(const F& visit) const {
    // Before this, entries of the last lines.
    size_t begin = 0;
    const auto wrapped = [&](size_t at) {
      return DistanceOf(EntryAt(at)) > at / kEntries;
    };
    const size_t size = lines_ * kEntries;
    while (begin < size && wrapped(begin)) ++begin;
    const auto visit_all = [&](size_t from, size_t to) {
      for (size_t at = from; at < to; ++at) {
        const uint64_t entry = EntryAt(at);
        if (entry != 0) visit(HashAt(at), NumberOf(entry));
      }
    };
    visit_all(begin, size);
    visit_all(0, begin);
  }
  size_t bytes() const { return lines_ * kLineBytes; }

 private:
  // Of a line.
  static constexpr uint32_t kEntries = 8;
  static constexpr size_t kLineBytes = kEntries * sizeof(uint64_t);
  static constexpr size_t kPageLines = kPageBytes / kLineBytes;
  static constexpr size_t kFewestPaged = 4 * kPageLines;
  static constexpr int kDistanceBits = 6;
  static constexpr uint64_t kMostDistance = (1u << kDistanceBits) - 1;

  // Where an entry belongs, and what this does not tell of its hash.
  struct Home {
    size_t line;
    uint64_t rest;
  };
  Home HomeOf(uint64_t hash) const {
    // hash / 2^54 * lines: the whole part, and the first bits of the rest.
    // Hashes with the same whole part differ in it by lines / 2^54 or more, so
    // the last k bits can be left out.
    const auto product =
        static_cast<unsigned __int128>(hash << (64 - kHashBits)) * lines_;
    return {static_cast<size_t>(product >> 64),
            static_cast<uint64_t>(product) >> left_out_};
  }
  // The number + 1 of the entry with this key, which is one at most, in a line;
  // 0: none. Without branches, which nobody could predict. A free entry differs
  // from the key 0 in nothing.
  uint64_t Match(const uint64_t* entries, uint64_t key) const {
    const uint64_t most = uint64_t{1} << number_bits_;
    uint64_t number = 0;
    for (uint32_t i = 0; i < kEntries; ++i) {
      const uint64_t differs = entries[i] ^ key;
      number = differs - 1 < most - 1 ? differs : number;
    }
    return number;
  }
  uint64_t* Line(size_t line) {
    return pages_[line / kPageLines] + line % kPageLines * kEntries;
  }
  const uint64_t* Line(size_t line) const {
    return const_cast<RowIndex*>(this)->Line(line);
  }
  uint64_t EntryAt(size_t at) const {
    return Line(at / kEntries)[at % kEntries];
  }
  // The inverse.
  uint64_t HashAt(size_t at) const;
  uint64_t DistanceOf(uint64_t entry) const {
    return entry >> number_bits_ & kMostDistance;
  }
  uint64_t RestOf(uint64_t entry) const {
    return entry >> (number_bits_ + kDistanceBits);
  }
  uint32_t NumberOf(uint64_t entry) const {
    const uint64_t mask = (uint64_t{1} << number_bits_) - 1;
    return static_cast<uint32_t>(entry & mask) - 1;
  }
  // Of two entries of one line.
  bool IsBefore(uint64_t a, uint64_t b) const {
    return DistanceOf(a) != DistanceOf(b) ? DistanceOf(a) > DistanceOf(b)
                                          : RestOf(a) < RestOf(b);
  }
  size_t Next(size_t line) const { return line + 1 == lines_ ? 0 : line + 1; }
  // False: an entry would be too far from its home.
  bool Fits(uint64_t entry, size_t line) const;
  bool Place(uint64_t hash, uint32_t number);
  // All entries in so many lines, or in more if they do not fit.
  bool Resize(size_t lines, SlabArena& arena);
  // Of a new one. False: no memory.
  bool Allocate(size_t lines, SlabArena& arena);
  // In pages of the arena.
  bool paged() const { return lines_ >= kFewestPaged; }

  // Null: no lines.
  uint64_t** pages_ = nullptr;
  size_t lines_ = 0;
  // k + 4.
  uint8_t number_bits_ = 4;
  // 10 + k.
  uint8_t left_out_ = 10;
};

}  // namespace elasticdl::ps
