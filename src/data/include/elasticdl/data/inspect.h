// Inspects RecordIO data sets: their contents, and whether they are intact.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/data/convert.h"
#include "elasticdl/data/recordio.h"

namespace elasticdl::data {

struct FileSummary {
  std::string path;
  RecordIoVariant variant = RecordIoVariant::kGo;
  int64_t records = 0;
  uint64_t bytes = 0;
  int64_t chunks = 0;
  // "snappy", or "none+snappy" when chunks differ; "" without chunks.
  std::string compressor;
  // OK, or why the index ends early; records and chunks are those before it.
  absl::Status damage;
};

// The RecordIO files at `origin`: a file, or a folder's files, sorted, without
// hidden ones and *.json, *.md. NOT_FOUND or INVALID_ARGUMENT (there are none)
// name it.
absl::StatusOr<std::vector<std::string>> ListRecordIoFiles(
    const std::string& origin);

absl::StatusOr<FileSummary> SummarizeFile(const std::string& path);

// What Verify found.
struct VerifyResult {
  int64_t files = 0;
  int64_t chunks = 0;
  int64_t records = 0;  // in sound chunks
  // One DATA_LOSS each, with file, chunk and byte offset.
  std::vector<absl::Status> problems;
};

// Reads every chunk of every file; goes on after a bad chunk.
absl::StatusOr<VerifyResult> VerifyRecordIo(const std::string& origin,
                                            const Progress& progress);

}  // namespace elasticdl::data
