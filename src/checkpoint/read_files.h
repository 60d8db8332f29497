// Reads files with several threads: each byte once, checked while it is still
// in the CPU's cache, and straight to where it belongs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "wire.h"

namespace elasticdl::checkpoint::internal {

// Where a part of a file goes.
struct Placement {
  Range from;
  char* to = nullptr;
};

struct FileToRead {
  std::string path;
  int64_t bytes = 0;
  // Nothing: it is not known.
  std::optional<uint32_t> crc32c;
  // Without overlaps. Bytes that are in none are only checked.
  std::vector<Placement> parts;
};

// Reads all bytes of all files. DATA_LOSS names a file that is too short or has
// another checksum; NOT_FOUND one that is missing. After an error, the places
// hold anything. `progress` is called on the calling thread, which is one of
// the readers.
absl::Status ReadFiles(std::vector<FileToRead> files,
                       const LoadProgress& progress);

// Small parts of a file, without a checksum.
class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path);
  // At the time of the constructor.
  int64_t size() const override { return size_; }
  absl::string_view At(int64_t offset, int64_t size) override;
  absl::Status status() const override { return status_; }

 private:
  const std::string path_;
  Fd fd_;
  int64_t size_ = 0;
  absl::Status status_;
  // What was read last.
  std::string window_;
  int64_t begin_ = 0;
};

}  // namespace elasticdl::checkpoint::internal
