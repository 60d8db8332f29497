// One embedding table of a server: rows by id, over all buckets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "elasticdl/optim.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/ps/initializer.h"
#include "row_table.h"

namespace elasticdl::ps {

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
  };
  // `optimizer` must outlive the table.
  EmbeddingTable(Options options, const optim::Optimizer& optimizer);

  // out[i * dim, (i + 1) * dim) = the row of ids[i]. Rows that nobody has
  // pushed to have their initial value and are not stored.
  void Pull(absl::Span<const int64_t> ids, float* out) const;

  // Applies grads[i * dim, …) to the row of ids[i]. `ids` ascend, none is
  // twice. RESOURCE_EXHAUSTED when there is no room for a row: some rows may
  // have been updated then, and the table is not to be used any more.
  absl::Status Push(absl::Span<const int64_t> ids, const float* grads,
                    double learning_rate, int64_t step);

  // Sets the row of an id; it is added unless it is there. `slots`: as many as
  // the optimizer has, or none for its initial values. Same error as Push.
  absl::Status Set(int64_t id, const float* values,
                   absl::Span<const float* const> slots);
  // Removes all rows.
  void Clear();

  const std::string& name() const { return options_.name; }
  size_t dim() const { return options_.dim; }
  size_t slots() const { return slots_; }
  int64_t rows() const { return rows_; }
  // How many of these ids have no row yet.
  int64_t CountMissing(absl::Span<const int64_t> ids) const;
  // Memory of a row, index included; slabs that are not full come on top.
  size_t bytes_per_row() const { return layout_.stride + 8; }

  // ---- snapshots and checkpoints ----
  // Bytes of a stored row: id, values, slots; padded to 8.
  const RowLayout& layout() const { return layout_; }
  size_t stride() const { return layout_.stride; }
  const RowTable& bucket(int bucket) const {
    return buckets_[static_cast<size_t>(bucket)];
  }
  // Adds a row as `stride` bytes of a bucket's row. Its id must not be there.
  absl::Status Restore(const char* row);
  // All rows of a bucket, `stride` bytes each; then they are no longer here.
  std::string TakeBucket(int bucket);

 private:
  // How many ids go through the passes together: enough to hide a cache miss,
  // few enough for the lines to stay in the first-level cache.
  static constexpr size_t kBatch = 32;

  float* Values(char* row) const {
    return reinterpret_cast<float*>(row + sizeof(int64_t));
  }
  absl::Status NoRoom() const;
  // Null: no room.
  char* Add(uint64_t hash, int64_t id);
  // Sets values and slots of a new row.
  void Initialize(uint64_t hash, float* values) const;
  // What lies behind the last slot: it is part of snapshots and digests.
  void ClearPadding(float* values) const;
  absl::Status PushBatch(const int64_t* ids, size_t count, const float* grads,
                         double learning_rate, int64_t step);

  const Options options_;
  const optim::Optimizer& optimizer_;
  const size_t slots_;
  const RowLayout layout_;
  SlabArena arena_;
  int64_t rows_ = 0;
  std::array<RowTable, kBuckets> buckets_;
};

}  // namespace elasticdl::ps
