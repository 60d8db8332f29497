// Applies rows of pushes that are read from a log, by several threads. Each row
// gets its pushes in their order, and no row depends on another one: the bits
// are those of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "embedding_table.h"

namespace elasticdl::ps {

// Rows are collected until there are enough for all threads, and sorted by
// their buckets. Then threads take buckets, while the next rows are collected.
// Whoever has to wait for them takes some, too.
//
// Thread-compatible.
class RowReplay {
 public:
  RowReplay();
  // Forgets what nobody has begun, and waits for the rest.
  ~RowReplay();
  RowReplay(const RowReplay&) = delete;
  RowReplay& operator=(const RowReplay&) = delete;

  // A table's part of a push; only for tables that can be split. `ids` and
  // `values` stay, and nobody else uses the table, until Finish.
  void Add(EmbeddingTable& table, absl::Span<const int64_t> ids,
           const float* values, double learning_rate, int64_t step);
  // Everything is applied. The first error of a table: it must not be used any
  // more.
  absl::Status Finish();

 private:
  struct Part {
    EmbeddingTable* table = nullptr;
    absl::Span<const int64_t> ids;
    EmbeddingTable::PushedRows push;
  };
  // Some whole buckets of a table.
  struct Unit {
    EmbeddingTable* table = nullptr;
    absl::Span<const EmbeddingTable::RowUpdate> updates;
    absl::Span<const EmbeddingTable::PushedRows> pushes;
  };
  struct Batch {
    // Of all tables, one after the other; in each by bucket.
    std::vector<EmbeddingTable::RowUpdate> updates;
    std::vector<EmbeddingTable::PushedRows> pushes;
    std::vector<Unit> units;
  };

  // Gives what was collected to the threads.
  void HandOver();
  void Sort(Batch& batch);
  // Parts [first, end) are those of one table; their updates begin at `at`.
  void SortTable(size_t first, size_t end, size_t at, Batch& batch);
  void Help();
  void Work();
  // False: there is none.
  bool Take(Unit& unit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Apply(const Unit& unit) ABSL_LOCKS_EXCLUDED(mu_);

  // Only of the caller's thread.
  std::vector<Part> parts_;
  size_t collected_bytes_ = 0;
  std::vector<uint64_t> hashes_;
  // One is applied while the other is filled.
  Batch batches_[2];
  size_t filled_ = 0;

  Mutex mu_;
  CondVar ready_;
  CondVar done_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  const Batch* batch_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Of its units: the next, and how many are not done.
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);

  std::vector<Thread> threads_;
};

}  // namespace elasticdl::ps
