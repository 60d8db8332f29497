// A file mapped for reading.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::data::internal {

// Thread-safe. The file must not shrink while it is mapped.
class MappedFile {
 public:
  // NOT_FOUND and the like name the path; a folder is INVALID_ARGUMENT.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  absl::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(absl::string_view bytes) : bytes_(bytes) {}
  const absl::string_view bytes_;
};

}  // namespace elasticdl::data::internal
