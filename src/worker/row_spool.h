// Buffers rows of tables between parameter servers and a checkpoint. They are
// written to an unnamed file and mapped, so that a table may be larger than
// memory: the kernel writes pages back and drops them when it needs memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::worker {

// Thread-compatible.
class RowSpool {
 public:
  // In `folder`, which is made if it is not there. The file vanishes with the
  // process.
  static absl::StatusOr<RowSpool> Create(const std::string& folder);
  RowSpool(RowSpool&&) = default;
  RowSpool& operator=(RowSpool&&) = default;

  // The next rows are of this table; `slots`: names of the optimizer's.
  void BeginTable(const std::string& name, int64_t dim,
                  const std::string& initializer,
                  const std::vector<std::string>& slots);
  // `ranks`: as many as ids, or none in all parts of a table.
  absl::Status Add(absl::Span<const int64_t> ids, const float* values,
                   absl::Span<const float* const> slots,
                   absl::Span<const int64_t> ranks = {});

  // Adds all tables to `into`. They look at what is returned.
  absl::StatusOr<std::shared_ptr<const void>> AddTo(
      checkpoint::Snapshot& into) &&;

 private:
  class File;
  // Rows that were added together: ids, ranks, values, then each slot, at
  // `at`.
  struct Batch {
    size_t table = 0;
    size_t at = 0;
    size_t rows = 0;
    size_t ranks = 0;
  };
  explicit RowSpool(std::unique_ptr<File> file);
  absl::Status Write(const void* data, size_t bytes);

  // Shared with whoever saves the rows.
  std::shared_ptr<File> file_;
  std::vector<checkpoint::TableRows> tables_;
  std::vector<Batch> batches_;
  size_t bytes_ = 0;
};

}  // namespace elasticdl::worker
