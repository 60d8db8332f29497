// One embedding table of a server: rows by id, over all buckets.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elasticdl/optim.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/ps/initializer.h"
#include "row_table.h"
#include "row_type.h"
#include "sightings.h"

namespace elasticdl::ps {

// Which row is evicted when a bucket is full: the one whose last push is
// oldest, or the one with the fewest pushes.
enum class Eviction { kAge, kFrequency };

// Thread-compatible: Pull may run in several threads while nobody changes the
// table.
class EmbeddingTable {
 public:
  struct Options {
    std::string name;
    size_t dim = 0;
    Initializer initializer;
    // Of the job: part of every initial value.
    uint64_t seed = 0;
    // Of the values; slots are always float32.
    RowType type = RowType::kFloat32;
    // Of the whole job; each bucket keeps its share of them. 0 = any number.
    int64_t max_rows = 0;
    Eviction eviction = Eviction::kAge;
    // A row exists from this push on.
    int min_count = 1;
  };
  // `optimizer` must outlive the table.
  EmbeddingTable(Options options, const optim::Optimizer& optimizer);

  // out[i * dim, (i + 1) * dim) = the row of ids[i]. Rows that are not stored
  // have their initial value.
  void Pull(absl::Span<const int64_t> ids, float* out) const;

  // Applies grads[i * dim, …) to the row of ids[i]. `ids` are ascending and
  // distinct. Ids that were seen too rarely get no row, and their gradient is
  // dropped; full buckets evict rows that this push does not touch. If rows may
  // be evicted and the table may not `grow`, so do buckets that would get more
  // rows than they have. RESOURCE_EXHAUSTED when there is no memory for a row:
  // some rows may have been updated then, and the table must not be used any
  // more.
  absl::Status Push(absl::Span<const int64_t> ids, const float* grads,
                    double learning_rate, int64_t step, bool grow = true);

  // Pushes bucket by bucket, which several threads may do at once, each for
  // buckets of its own. Only for tables that can be split. An update is row
  // number `row` of a push.
  bool splits() const { return !counts() && !evicts(); }
  struct PushedRows {
    const float* grads = nullptr;
    double learning_rate = 0;
    int64_t step = 0;
  };
  struct RowUpdate {
    // Of the id, which a push has once.
    uint64_t hash = 0;
    uint32_t push = 0;
    uint32_t row = 0;
  };
  // Sorted by bucket, and by push in each of them. Same error as Push.
  absl::Status PushRows(absl::Span<const RowUpdate> updates,
                        absl::Span<const PushedRows> pushes);

  // Sets the row of an id; it is added unless it is there. `slots`: as many as
  // the optimizer has, or none for its initial values. `rank`: of a table that
  // evicts rows; absent: before all others. Same error as Push.
  absl::Status Set(int64_t id, const float* values,
                   absl::Span<const float* const> slots,
                   std::optional<uint64_t> rank = std::nullopt);
  // Removes all rows and sightings.
  void Clear();

  const std::string& name() const { return options_.name; }
  size_t dim() const { return options_.dim; }
  size_t slots() const { return slots_; }
  int64_t rows() const { return rows_; }
  // By how much a push of these ids may make the table larger.
  struct Growth {
    int64_t rows = 0;
    size_t bytes = 0;
  };
  Growth GrowthBy(absl::Span<const int64_t> ids, bool grow) const;
  // The same for Set of these ids, by which no row goes; `cleared`: after
  // Clear.
  Growth GrowthBySet(absl::Span<const int64_t> ids, bool cleared) const;
  // A push of so many ids makes it larger by at most this.
  size_t MostGrowth(size_t ids) const {
    return ids * (layout_.stride + kIndexBytes) +
           std::min<size_t>(ids, kBuckets) *
               (RowTable::BytesFor(1, layout_) + layout_.slab_bytes()) +
           SlabArena::Rest(1);
  }
  // Memory of rows and sightings, and what even an empty table takes. Follows
  // from the rows that are there, not from how they came to be: servers decide
  // by it which rows they evict, and a backup must decide the same.
  size_t bytes() const {
    return empty_bytes() + arenas_.bytes +
           SlabArena::Rest(arenas_.rows.used_bytes()) +
           static_cast<size_t>(rows_) * kIndexBytes + sighting_bytes_;
  }
  static constexpr size_t empty_bytes() { return sizeof(EmbeddingTable); }

  // ---- snapshots and checkpoints ----
  // HashName of its name.
  uint64_t hash() const { return hash_; }
  // A row outside of the table: its id, and as many bytes as a row has.
  size_t record_bytes() const { return sizeof(int64_t) + layout_.stride; }
  size_t row_bytes() const { return layout_.stride; }
  static int64_t IdOf(const char* record) {
    int64_t id = 0;
    __builtin_memcpy(&id, record, sizeof(id));
    return id;
  }
  uint32_t rows_in(int bucket) const {
    return buckets_[static_cast<size_t>(bucket)].rows();
  }
  // visit(id, row) for all rows of a bucket, in an order that does not depend
  // on how they came to be. Allocates nothing.
  template <typename F>
  void ForEach(int bucket, const F& visit) const {
    const RowTable& rows = buckets_[static_cast<size_t>(bucket)];
    const uint64_t upper = static_cast<uint64_t>(bucket) << kHashBits;
    rows.index().ForEach([&](uint64_t lower, uint32_t number) {
      visit(IdOfHash(hash_, upper | lower), rows.row(number, layout_));
    });
  }
  void CopyValues(const char* row, float* to) const {
    LoadValues(options_.type, row, to, options_.dim);
  }
  const float* Slot(const char* row, size_t slot) const {
    return reinterpret_cast<const float*>(row + slots_at_) +
           slot * options_.dim;
  }
  // Rows may be evicted; then they have ranks.
  bool evicts() const { return options_.max_rows > 0; }
  uint64_t RankOf(const char* row) const;
  // Sightings are counted.
  bool counts() const { return options_.min_count > 1; }
  // Empty unless `counts`.
  absl::string_view sightings(int bucket) const;
  // Sightings::IsValid.
  void RestoreSightings(int bucket, absl::string_view data);
  // Adds the rows of whole records, which are in the order of their buckets.
  // DATA_LOSS if one of their ids is there, or if they are not. Uses two
  // threads if there are many.
  absl::Status Restore(absl::string_view records);
  // The records of all rows of a bucket; then its rows and sightings are no
  // longer here.
  std::string TakeBucket(int bucket);

 private:
  // At most, of one row (row_index.h).
  static constexpr size_t kIndexBytes = 16;
  // How many ids go through the stages of Visit together: enough to hide a
  // cache miss, few enough for the lines to stay in the first-level cache.
  static constexpr size_t kBatch = 16;
  // Of one id, on its way through the stages.
  struct Lookup {
    uint64_t hash = 0;
    // Of the row, in its bucket.
    uint32_t number = 0;
    // Null: it has none.
    const char* row = nullptr;
  };

  const RowTable& BucketFor(uint64_t hash) const {
    return buckets_[static_cast<size_t>(BucketOf(hash))];
  }
  RowTable& BucketFor(uint64_t hash) {
    return buckets_[static_cast<size_t>(BucketOf(hash))];
  }
  // Looks ids up, batch by batch: visit(position of the first, lookups, how
  // many). The first `bytes` of the rows are on their way to the cache before.
  // `visit` may add rows.
  template <typename F>
  void Visit(absl::Span<const int64_t> ids, size_t bytes, const F& visit) const;
  // The same for `size` ids of these hashes.
  template <typename H, typename F>
  void VisitHashes(size_t size, const H& hash_of, size_t bytes,
                   const F& visit) const;
  absl::Status NoRoom() const;
  // Null: no room. Whoever calls it counts rows_.
  char* Add(uint64_t hash) {
    return BucketFor(hash).Add(hash, layout_, arenas_);
  }
  // Adds those of the batch that are not there, and finds those again that have
  // moved since `moves`. `repeated`: some may be there twice.
  absl::Status AddMissing(Lookup* lookups, size_t count, int64_t step,
                          uint64_t moves, bool repeated);
  enum class Room { kEmpty, kAny, kMayGrow, kMayNotGrow };
  Growth CountGrowth(absl::Span<const int64_t> ids, Room room) const;
  // Sets values and slots of a new row.
  void Initialize(uint64_t hash, char* row) const;
  // The initial values, as they would be stored.
  void FillInitial(uint64_t hash, float* values) const;
  float* MutableSlot(char* row, size_t slot) const {
    return const_cast<float*>(Slot(row, slot));
  }
  // `grads`: of each row. `floats`: room for values that are stored in another
  // type.
  void PushBatch(const Lookup* lookups, size_t count, const float* const* grads,
                 double learning_rate, int64_t step,
                 std::vector<float>& floats);
  int BucketOfRecord(const char* record) const {
    return BucketOf(HashRow(hash_, IdOf(record)));
  }
  // Only of buckets from `first` on and before `end`.
  absl::Status RestoreBuckets(int first, int end, absl::string_view records);
  absl::Status RestoreBucket(int bucket, absl::string_view records);
  absl::Status PushKept(absl::Span<const int64_t> ids, const float* grads,
                        double learning_rate, int64_t step);

  // embedding_table_bounds.cc: for tables that count or evict.
  uint32_t MostIn(int bucket, bool grow) const;
  // Counts sightings and makes room for those ids that get a row. Returns the
  // positions of the ids that have one or get one.
  std::vector<uint32_t> Admit(absl::Span<const int64_t> ids, int64_t step,
                              bool grow);
  bool SeenEnough(uint64_t hash);
  void SetRank(char* row, uint64_t rank) const;
  void Touch(char* row, int64_t step) const;
  void Evict(int bucket, uint32_t added, int64_t step, bool grow);

  const Options options_;
  const optim::Optimizer& optimizer_;
  const size_t slots_;
  const uint64_t hash_;
  // A row has its values, at a boundary of the cache's lines if its size
  // allows, its slots, its rank if rows may be evicted, and zeros up to a
  // multiple of 8.
  const size_t slots_at_;
  const size_t rank_at_;
  const RowLayout layout_;
  RowArenas arenas_;
  // Two threads may add rows at once.
  std::atomic<int64_t> rows_ = 0;
  std::array<RowTable, kBuckets> buckets_;
  // By bucket; none unless `counts`.
  std::vector<Sightings> sightings_;
  size_t sighting_bytes_ = 0;
  // For PushBatch, except that of PushRows.
  std::vector<float> floats_;
};

}  // namespace elasticdl::ps
