// One new file of a checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "layout.h"

namespace elasticdl::checkpoint::internal {

// Writes one new file and tracks its size and checksum. Thread-compatible.
class FileWriter {
 public:
  FileWriter(const std::string& folder, std::string name);

  // An error is reported by Finish; data after it is dropped.
  void Append(absl::string_view data);
  const absl::Status& status() const { return status_; }

  // Syncs the file and returns its size and checksum.
  absl::StatusOr<ManifestFile> Finish();

 private:
  void Flush();
  void Write(absl::string_view data);

  const std::string path_;
  Fd fd_;
  std::string buffer_;
  ManifestFile entry_;
  absl::Status status_;
};

}  // namespace elasticdl::checkpoint::internal
