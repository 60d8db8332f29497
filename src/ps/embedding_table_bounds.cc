// Tables that do not keep everything: ids that were seen too seldom get no row,
// and full buckets lose rows. All of it is decided bucket by bucket, by the
// pushes alone: it does not matter which server holds the bucket, nor in which
// order its rows lie in memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "embedding_table.h"
#include "embedding_table_visit.h"

namespace elasticdl::ps {
namespace {

// A row's rank: how many pushes it had (0 unless that counts) above the step of
// the last one. The lowest ranks go first.
constexpr int kStepBits = 40;
constexpr uint64_t kStepMask = (uint64_t{1} << kStepBits) - 1;
constexpr uint64_t kMostPushes = (uint64_t{1} << (64 - kStepBits)) - 1;

uint64_t StepOf(uint64_t rank) { return rank & kStepMask; }
uint64_t PushesOf(uint64_t rank) { return rank >> kStepBits; }

// The share of a bucket's rows that goes at once: looking for them takes a pass
// over the bucket.
constexpr uint32_t kEvictedShare = 8;

}  // namespace

uint32_t EmbeddingTable::MostIn(int bucket, bool grow) const {
  const int64_t share = (options_.max_rows + kBuckets - 1) / kBuckets;
  const uint32_t most = grow ? RowTable::kMaxRows : rows_in(bucket);
  return static_cast<uint32_t>(std::min<int64_t>(share, most));
}

uint64_t EmbeddingTable::RankOf(const char* row) const {
  uint64_t rank = 0;
  std::memcpy(&rank, row + rank_at_, sizeof(rank));
  return rank;
}

void EmbeddingTable::SetRank(char* row, uint64_t rank) const {
  // Where it was saved, pushes may have counted.
  if (options_.eviction == Eviction::kAge) rank &= kStepMask;
  std::memcpy(row + rank_at_, &rank, sizeof(rank));
}

void EmbeddingTable::Touch(char* row, int64_t step) const {
  uint64_t pushes = 0;
  if (options_.eviction == Eviction::kFrequency) {
    pushes = std::min(PushesOf(RankOf(row)) + 1, kMostPushes);
  }
  const uint64_t rank =
      pushes << kStepBits | (static_cast<uint64_t>(step) & kStepMask);
  std::memcpy(row + rank_at_, &rank, sizeof(rank));
}

bool EmbeddingTable::SeenEnough(uint64_t hash) {
  Sightings& sightings = sightings_[static_cast<size_t>(BucketOf(hash))];
  sighting_bytes_ -= sightings.bytes();
  const bool enough = sightings.Add(hash, options_.min_count);
  sighting_bytes_ += sightings.bytes();
  return enough;
}

std::vector<uint32_t> EmbeddingTable::Admit(absl::Span<const int64_t> ids,
                                            int64_t step, bool grow) {
  std::vector<uint32_t> kept;
  kept.reserve(ids.size());
  std::map<int, uint32_t> added;
  Visit(ids, layout_.stride, [&](size_t from, Lookup* lookups, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (lookups[i].row != nullptr) {
        // First, so that Evict leaves it alone.
        if (evicts()) Touch(const_cast<char*>(lookups[i].row), step);
      } else {
        if (counts() && !SeenEnough(lookups[i].hash)) continue;
        ++added[BucketOf(lookups[i].hash)];
      }
      kept.push_back(static_cast<uint32_t>(from + i));
    }
  });
  if (evicts()) {
    for (const auto& [bucket, rows] : added) Evict(bucket, rows, step, grow);
  }
  return kept;
}

void EmbeddingTable::Evict(int bucket, uint32_t added, int64_t step,
                           bool grow) {
  RowTable& rows = buckets_[static_cast<size_t>(bucket)];
  const uint32_t most = MostIn(bucket, grow);
  if (rows.rows() + added <= most) return;
  const size_t wanted =
      std::max(rows.rows() + added - most, most / kEvictedShare);
  // Rank, then anything that is the same on every server, and the number.
  std::vector<std::tuple<uint64_t, uint64_t, uint32_t>> all;
  const uint64_t now = static_cast<uint64_t>(step) & kStepMask;
  rows.index().ForEach([&](uint64_t hash, uint32_t number) {
    const uint64_t rank = RankOf(rows.row(number, layout_));
    if (StepOf(rank) != now) all.emplace_back(rank, hash, number);
  });
  const size_t evicted = std::min(wanted, all.size());
  if (evicted < all.size()) {
    std::nth_element(all.begin(),
                     all.begin() + static_cast<std::ptrdiff_t>(evicted),
                     all.end());
  }
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < evicted; ++i) numbers.push_back(std::get<2>(all[i]));
  std::sort(numbers.begin(), numbers.end());
  rows.Remove(numbers, layout_, arenas_);
  rows_ -= static_cast<int64_t>(evicted);
}

EmbeddingTable::Growth EmbeddingTable::GrowthBy(absl::Span<const int64_t> ids,
                                                bool grow) const {
  if (!evicts()) return CountGrowth(ids, Room::kAny);
  return CountGrowth(ids, grow ? Room::kMayGrow : Room::kMayNotGrow);
}

EmbeddingTable::Growth EmbeddingTable::GrowthBySet(
    absl::Span<const int64_t> ids, bool cleared) const {
  return CountGrowth(ids, cleared ? Room::kEmpty : Room::kAny);
}

EmbeddingTable::Growth EmbeddingTable::CountGrowth(
    absl::Span<const int64_t> ids, Room room) const {
  // By bucket: how many of the ids it has, and has not.
  std::array<uint32_t, kBuckets> there{};
  std::array<uint32_t, kBuckets> missing{};
  Visit(ids, 0, [&](size_t, const Lookup* lookups, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const bool found = lookups[i].row != nullptr && room != Room::kEmpty;
      ++(found ? there
               : missing)[static_cast<size_t>(BucketOf(lookups[i].hash))];
    }
  });
  Growth growth;
  const size_t used = room == Room::kEmpty ? 0 : arenas_.rows.used_bytes();
  size_t slabs = used;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const auto b = static_cast<size_t>(bucket);
    uint32_t added = missing[b];
    if (added == 0) continue;
    const uint32_t now = room == Room::kEmpty ? 0 : rows_in(bucket);
    if (room == Room::kMayGrow || room == Room::kMayNotGrow) {
      // What the push touches stays, and no more than the bucket's share.
      const uint32_t most =
          std::max(MostIn(bucket, room == Room::kMayGrow), there[b] + added);
      added = std::min(added, most - std::min(most, now));
    }
    growth.rows += added;
    growth.bytes += RowTable::BytesFor(now + added, layout_) -
                    RowTable::BytesFor(now, layout_) + added * kIndexBytes;
    slabs += RowTable::SlabBytesFor(now + added, layout_) -
             RowTable::SlabBytesFor(now, layout_);
  }
  // Rows that move to slabs may fit into what is left of a page.
  growth.bytes += SlabArena::Rest(slabs);
  growth.bytes -= std::min(growth.bytes, SlabArena::Rest(used));
  return growth;
}

absl::string_view EmbeddingTable::sightings(int bucket) const {
  if (!counts()) return "";
  return sightings_[static_cast<size_t>(bucket)].data();
}

void EmbeddingTable::RestoreSightings(int bucket, absl::string_view data) {
  Sightings& sightings = sightings_[static_cast<size_t>(bucket)];
  sighting_bytes_ -= sightings.bytes();
  sightings.Restore(data);
  sighting_bytes_ += sightings.bytes();
}

}  // namespace elasticdl::ps
