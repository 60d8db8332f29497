// A file that another process appends to.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::cli {

// Thread-compatible.
class TailedFile {
 public:
  // Creates it, empty.
  static absl::StatusOr<TailedFile> Create(const std::string& path);

  // Becomes readable when the file has grown.
  int fd() const { return changes_.get(); }
  // For whoever is to write to it: it appends.
  int writer() const { return file_.get(); }
  // What was written since the last call.
  std::string ReadNew();

 private:
  Fd file_;
  Fd changes_;
  int64_t read_ = 0;
};

}  // namespace elasticdl::cli
