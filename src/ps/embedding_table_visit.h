// How an embedding table looks up many ids; included only by its own sources.
#pragma once

#include <algorithm>

#include "embedding_table.h"

namespace elasticdl::ps {

// A lookup reads the index, the slab's address and the row, each of which may
// be far away in memory. Each is prefetched one turn before it is read, while
// other batches are processed.
template <typename H, typename F>
void EmbeddingTable::VisitHashes(size_t size, const H& hash_of, size_t bytes,
                                 const F& visit) const {
  constexpr size_t kStages = 4;
  constexpr size_t kCacheLine = 64;
  // The hardware fetches the rest of long rows.
  constexpr size_t kPrefetchBytes = 256;
  Lookup ring[kStages][kBatch];
  bytes = std::min(bytes, kPrefetchBytes);
  const size_t batches = (size + kBatch - 1) / kBatch;
  const auto count = [&](size_t batch) {
    return std::min(kBatch, size - batch * kBatch);
  };
  for (size_t turn = 0; turn < batches + kStages - 1; ++turn) {
    if (turn < batches) {
      Lookup* lookups = ring[turn % kStages];
      for (size_t i = 0; i < count(turn); ++i) {
        lookups[i].hash = hash_of(turn * kBatch + i);
        BucketFor(lookups[i].hash).index().Prefetch(lookups[i].hash);
      }
    }
    // Batches that have not begun are beyond the last one, too: they wrapped.
    if (turn - 1 < batches) {
      Lookup* lookups = ring[(turn - 1) % kStages];
      for (size_t i = 0; i < count(turn - 1); ++i) {
        const RowTable& bucket = BucketFor(lookups[i].hash);
        lookups[i].number = bucket.index().FindAtHome(lookups[i].hash);
        if (lookups[i].number < RowTable::kFurther) {
          bucket.PrefetchSlab(lookups[i].number, layout_);
        }
      }
    }
    if (turn - 2 < batches) {
      Lookup* lookups = ring[(turn - 2) % kStages];
      for (size_t i = 0; i < count(turn - 2); ++i) {
        const RowTable& bucket = BucketFor(lookups[i].hash);
        lookups[i].row = nullptr;
        // One in fifteen is not in its first line, which is another one to wait
        // for.
        if (lookups[i].number == RowTable::kFurther) {
          lookups[i].number = bucket.index().Find(lookups[i].hash);
        }
        if (lookups[i].number == RowTable::kNoRow) continue;
        const char* row = bucket.row(lookups[i].number, layout_);
        lookups[i].row = row;
        for (size_t at = 0; at < bytes; at += kCacheLine) {
          // Into the second level: the first has room for fewer lines on their
          // way.
          __builtin_prefetch(row + at, 0, 2);
        }
      }
    }
    if (turn - 3 < batches) {
      visit((turn - 3) * kBatch, ring[(turn - 3) % kStages], count(turn - 3));
    }
  }
}

template <typename F>
void EmbeddingTable::Visit(absl::Span<const int64_t> ids, size_t bytes,
                           const F& visit) const {
  VisitHashes(
      ids.size(), [&](size_t i) { return HashRow(hash_, ids[i]); }, bytes,
      visit);
}

}  // namespace elasticdl::ps
