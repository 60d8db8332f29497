#include "row_index.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace elasticdl::ps {
namespace {

constexpr size_t kMostLines = size_t{1} << 22;

// At most 0.8 of the places are taken: few entries are not in their home then.
bool IsFull(uint64_t rows, uint64_t lines) { return rows * 5 >= lines * 32; }

// By a half, so that at least 0.53 of the places are taken: 15 bytes per row. A
// large index takes most of its time and memory at the size that it has, and
// grows by a quarter: at most 13 bytes.
size_t MoreLines(size_t lines) {
  constexpr size_t kLarge = 256;
  return lines + std::max<size_t>(lines / (lines < kLarge ? 2 : 4), 1);
}

}  // namespace

RowIndex::~RowIndex() {
  if (pages_ != nullptr && !paged()) free(pages_[0]);
  free(pages_);
}

uint64_t RowIndex::HashAt(size_t at) const {
  const uint64_t entry = EntryAt(at);
  const uint64_t line = at / kEntries;
  const uint64_t distance = DistanceOf(entry);
  const uint64_t home =
      line >= distance ? line - distance : line + lines_ - distance;
  // The only hash whose product lies in the 2^k numbers from here on.
  const auto product = (static_cast<unsigned __int128>(home) << kHashBits) +
                       (RestOf(entry) << (left_out_ - (64 - kHashBits)));
  return static_cast<uint64_t>((product + lines_ - 1) / lines_);
}

bool RowIndex::Insert(uint64_t hash, uint32_t number, SlabArena& arena) {
  if (number >= kMaxRows) return false;
  if (IsFull(number, lines_) && !Resize(MoreLines(lines_), arena)) {
    return false;
  }
  while (!Place(hash, number)) {
    // Hashes of all ids are equally likely; whoever chooses ids for their
    // hashes gets an error before the index takes all memory.
    if (lines_ > number + kPageLines || !Resize(MoreLines(lines_), arena)) {
      return false;
    }
  }
  return true;
}

bool RowIndex::Reserve(uint64_t rows, SlabArena& arena) {
  rows = std::min<uint64_t>(rows, kMaxRows);
  if (!IsFull(rows, lines_)) return true;
  // One that grows once may grow again.
  return Resize(
      std::max<size_t>(rows * 5 / 32 + 1, lines_ == 0 ? 0 : MoreLines(lines_)),
      arena);
}

void RowIndex::Reset() {
  for (size_t line = 0; line < lines_; line += kPageLines) {
    std::memset(Line(line), 0,
                std::min(kPageLines, lines_ - line) * kLineBytes);
  }
}

void RowIndex::Clear(SlabArena& arena) {
  for (size_t line = 0; paged() && line < lines_; line += kPageLines) {
    arena.Free(reinterpret_cast<char*>(Line(line)));
  }
  if (pages_ != nullptr && !paged()) free(pages_[0]);
  free(std::exchange(pages_, nullptr));
  lines_ = 0;
}

bool RowIndex::Fits(uint64_t entry, size_t line) const {
  while (true) {
    const uint64_t last = Line(line)[kEntries - 1];
    if (last == 0) return true;
    // The last of a line that is full moves to the next one.
    if (IsBefore(entry, last)) entry = last;
    if (DistanceOf(entry) == kMostDistance) return false;
    entry += uint64_t{1} << number_bits_;
    line = Next(line);
  }
}

bool RowIndex::Place(uint64_t hash, uint32_t number) {
  const Home home = HomeOf(hash);
  uint64_t entry =
      home.rest << (kDistanceBits + number_bits_) | (uint64_t{number} + 1);
  size_t line = home.line;
  if (!Fits(entry, line)) return false;
  while (true) {
    uint64_t* const begin = Line(line);
    uint64_t* const end = begin + kEntries;
    const uint64_t last = end[-1];
    // From the back: most come in the order of their hashes.
    uint64_t* at = begin;
    while (at != end && *at != 0) ++at;
    if (at != end || IsBefore(entry, last)) {
      if (at == end) --at;
      for (; at != begin && IsBefore(entry, at[-1]); --at) *at = at[-1];
      *at = entry;
      if (last == 0) return true;
      entry = last;
    }
    entry += uint64_t{1} << number_bits_;
    line = Next(line);
  }
}

bool RowIndex::Allocate(size_t lines, SlabArena& arena) {
  const size_t pages = (lines + kPageLines - 1) / kPageLines;
  pages_ = static_cast<uint64_t**>(calloc(pages, sizeof(uint64_t*)));
  if (pages_ == nullptr) return false;
  if (lines < kFewestPaged) {
    auto* piece =
        static_cast<uint64_t*>(aligned_alloc(kLineBytes, lines * kLineBytes));
    if (piece == nullptr) return false;
    std::memset(piece, 0, lines * kLineBytes);
    for (size_t page = 0; page < pages; ++page) {
      pages_[page] = piece + page * kPageLines * kEntries;
    }
  }
  for (size_t page = 0; lines >= kFewestPaged && page < pages; ++page) {
    bool zeros = false;
    pages_[page] = reinterpret_cast<uint64_t*>(arena.Allocate(&zeros));
    if (pages_[page] != nullptr) {
      if (!zeros) std::memset(pages_[page], 0, kPageBytes);
    } else {
      for (; page > 0; --page) {
        arena.Free(reinterpret_cast<char*>(pages_[page - 1]));
      }
      // Nothing that the destructor would free.
      free(std::exchange(pages_, nullptr));
      return false;
    }
  }
  lines_ = lines;
  const int k = 63 - __builtin_clzll(lines);
  number_bits_ = static_cast<uint8_t>(k + 4);
  left_out_ = static_cast<uint8_t>(64 - kHashBits + k);
  return true;
}

bool RowIndex::Resize(size_t lines, SlabArena& arena) {
  for (; lines <= kMostLines; lines = MoreLines(lines)) {
    // Whole pages.
    if (lines >= kFewestPaged) lines = RoundUp(lines, kPageLines);
    RowIndex resized;
    if (!resized.Allocate(lines, arena)) return false;
    bool placed = true;
    ForEach([&](uint64_t hash, uint32_t number) {
      placed = placed && resized.Place(hash, number);
    });
    if (placed) {
      std::swap(pages_, resized.pages_);
      std::swap(lines_, resized.lines_);
      std::swap(number_bits_, resized.number_bits_);
      std::swap(left_out_, resized.left_out_);
    }
    resized.Clear(arena);
    if (placed) return true;
  }
  return false;
}

}  // namespace elasticdl::ps
