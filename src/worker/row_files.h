// The files of an export that hold the rows of a table which no single tensor
// can hold: its ids may be any int64 (docs/formats.md, "Exported model").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::worker {

// `<dir>/<name>-<i>.pt`: dictionaries of `ids` and `rows` for Python's
// torch.load, each of a bounded size. Thread-compatible.
class RowFiles {
 public:
  struct Options {
    std::string dir;
    // Of the files.
    std::string name;
    int64_t dim = 0;
    // A file is written when it has so many: 1 GiB.
    size_t max_values = size_t{1} << 28;
  };
  struct File {
    // In the folder.
    std::string name;
    int64_t rows = 0;
  };
  explicit RowFiles(Options options);

  // `rows`: dim values for each id.
  absl::Status Add(absl::Span<const int64_t> ids, const float* rows);
  // Writes what is left; a table without rows has one empty file.
  absl::Status Finish();

  // Of those that are written.
  const std::vector<File>& files() const { return files_; }
  int64_t rows() const;

 private:
  absl::Status Write();

  const Options options_;
  std::vector<int64_t> ids_;
  std::vector<float> values_;
  std::vector<File> files_;
};

// What an export says of them: <dir>/index.json. Written last: an index means
// that all files are complete. Thread-compatible.
class RowIndexFile {
 public:
  void Add(const std::string& table, int64_t dim, const RowFiles& files);
  // Atomic.
  absl::Status Write(const std::string& dir) const;
  // For the user.
  v1::ExportedRows Summary(const std::string& dir) const;

 private:
  struct Table {
    std::string name;
    int64_t dim = 0;
    std::vector<RowFiles::File> files;
    int64_t rows = 0;
  };
  std::vector<Table> tables_;
};

}  // namespace elasticdl::worker
