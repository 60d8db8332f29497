// IDX files: a big-endian header with type and dimensions, then the items.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::data::internal {

// Items of unsigned bytes, mapped, or in memory when the file is gzipped.
// Thread-safe.
class IdxFile {
 public:
  // INVALID_ARGUMENT for an element type other than unsigned byte; DATA_LOSS
  // when the size differs from what the header says.
  static absl::StatusOr<IdxFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t num_items() const { return num_items_; }
  size_t item_bytes() const { return item_bytes_; }
  // `item` in [0, num_items()).
  absl::string_view Item(int64_t item) const {
    return items_.substr(static_cast<size_t>(item) * item_bytes_, item_bytes_);
  }
  const std::shared_ptr<const void>& memory() const { return memory_; }

 private:
  absl::Status ParseHeader(absl::string_view bytes);

  std::string path_;
  std::shared_ptr<const void> memory_;
  absl::string_view items_;
  int64_t num_items_ = 0;
  size_t item_bytes_ = 1;
};

// "dir/train-images-idx3-ubyte.gz" and the like.
bool LooksLikeIdx(absl::string_view path);

// The labels that belong to a file of images by the usual names
// (train-images-idx3-ubyte → train-labels-idx1-ubyte), or "" if there is none.
std::string FindIdxLabels(const std::string& images_path);

}  // namespace elasticdl::data::internal
