// Where records come from. A reader lists its shards and reads ranges of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::data {

// Records [begin, end) of one source (for files: the file's path).
struct Shard {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

// Records and the memory they point into. Move-only.
class RecordBatch {
 public:
  RecordBatch() = default;
  RecordBatch(RecordBatch&&) = default;
  RecordBatch& operator=(RecordBatch&&) = default;

  const std::vector<absl::string_view>& records() const { return records_; }
  std::vector<absl::string_view>& records() { return records_; }
  // Keeps `memory` alive as long as this batch; shared, because neighbouring
  // batches may point into the same decompressed chunk.
  void Hold(std::shared_ptr<const void> memory) {
    memory_.push_back(std::move(memory));
  }

 private:
  std::vector<absl::string_view> records_;
  std::vector<std::shared_ptr<const void>> memory_;
};

// Facts about the records for feed functions (CSV: column names in order).
struct Metadata {
  std::vector<std::string> column_names;
};

// Thread-safe: Read may be called from several threads at once.
class DataReader {
 public:
  virtual ~DataReader() = default;
  // All shards, in an order that depends on the data alone. INVALID_ARGUMENT
  // when there is no record at all.
  virtual absl::StatusOr<std::vector<Shard>> CreateShards() = 0;
  // Reads records [begin, end) of the shard `name`. DATA_LOSS names file, chunk
  // and offset of what is corrupt.
  virtual absl::StatusOr<RecordBatch> Read(const std::string& name,
                                           int64_t begin, int64_t end) = 0;
  virtual const Metadata& metadata() const = 0;
};

// `--data_reader_params`: "k=v; k=v".
using ReaderParams = std::map<std::string, std::string>;
// INVALID_ARGUMENT names the part that is no k=v.
absl::StatusOr<ReaderParams> ParseReaderParams(absl::string_view text);

// Opens by `reader_type` in params (RecordIO, CSV, Text, IDX, Synthetic), else
// by what `origin` is: a file ending in .csv, .txt or an IDX name, a synthetic:
// URL, otherwise a RecordIO file or a folder of them. NOT_FOUND when there is
// nothing at `origin`.
absl::StatusOr<std::unique_ptr<DataReader>> OpenDataReader(
    const std::string& origin, const ReaderParams& params);

}  // namespace elasticdl::data
