// Finds records in text files without holding them in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "mapped_file.h"

namespace elasticdl::data::internal {

// How records are told apart.
struct RecordSyntax {
  // Quotes at the start of a field hide line ends, blank lines are skipped.
  bool csv = true;
  char separator = ',';
};

// Moves `rest` beyond its first record and returns that, without its line end
// (\n or \r\n). INVALID_ARGUMENT when a quote never closes. An empty view with
// null data means that only blank lines were left.
absl::StatusOr<absl::string_view> TakeRecord(absl::string_view& rest,
                                             const RecordSyntax& syntax);

// A text file, its first line perhaps a header, and the offset of every
// kStride-th record. Thread-safe.
class TextIndex {
 public:
  static constexpr int64_t kStride = 256;

  // Scans the file once. Errors name file, record and byte offset.
  static absl::StatusOr<TextIndex> Build(const std::string& path,
                                         const RecordSyntax& syntax,
                                         bool skip_header);

  int64_t num_records() const { return num_records_; }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  // [begin, end) within the file; they point into the mapping.
  absl::StatusOr<std::vector<absl::string_view>> Read(int64_t begin,
                                                      int64_t end) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  RecordSyntax syntax_;
  std::vector<uint64_t> offsets_;
  int64_t num_records_ = 0;
};

// The file's text after a byte-order mark.
absl::string_view SkipByteOrderMark(absl::string_view text);

}  // namespace elasticdl::data::internal
