// Splits embedding tables into pieces for files, and joins them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::checkpoint::internal {

// Some rows of a table that are one entry of a file: of one part of the table,
// or of several that follow each other.
struct TablePiece {
  struct Segment {
    const TableRows* part = nullptr;
    size_t begin = 0;
    size_t count = 0;
  };
  // Name, dim and slots are those of all segments.
  const TableRows* table = nullptr;
  std::vector<Segment> segments;
  int64_t rows = 0;
  // At most, ids included.
  int64_t bytes = 0;
};

// INVALID_ARGUMENT names the table and what is wrong.
absl::Status CheckTables(absl::Span<const TableRows> tables);

// All pieces of the first table, of the second one, and so on. A piece has up
// to `max_bytes`, but at least one row, and two pieces of a table have more
// together: they never share a file, where readers would see only one of them.
// A table without rows has one piece. Values and slots are cut alike.
std::vector<std::vector<TablePiece>> CutTables(
    absl::Span<const TableRows> tables, int64_t max_bytes);

// Gives the tables their ranks, which were read from files of their own.
// DATA_LOSS when ids or parts do not match. A table may have none.
absl::Status JoinRanks(const std::vector<EmbeddingRows>& ranks,
                       std::vector<EmbeddingRows>& tables,
                       const std::string& path);

// Gives the tables their slots, which were read from files of their own.
// DATA_LOSS when ids, shapes or parts do not match.
absl::Status JoinSlots(std::vector<EmbeddingRows> slots,
                       std::vector<EmbeddingRows>& tables,
                       const std::string& path);

}  // namespace elasticdl::checkpoint::internal
