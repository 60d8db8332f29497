// A tar archive that is made while it is read.
//
// Own code instead of libarchive: that one pushes bytes while libcurl pulls
// them, which needs a buffer between them, and an image's tag is the digest of
// these bytes, which must not change with the version of a library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/docker/context.h"

namespace elasticdl::docker {

struct TarOptions {
  // False: all times are 0, so that the same content gives the same bytes.
  bool with_times = true;
};

// Thread-compatible. The entries in POSIX ustar form, with pax headers for what
// does not fit (long names and links, files of 8 GiB and more). The owner is
// 0:0, as in the archives of the Docker client. One file is open at a time; its
// content is never held in memory.
class TarStream {
 public:
  // `entries` must outlive this.
  TarStream(const std::vector<ContextEntry>& entries,
            const TarOptions& options);

  // Puts up to `size` bytes into `buffer` and returns how many; 0 at the end.
  // FAILED_PRECONDITION when a file has become shorter since it was listed.
  // After an error it must not be called again.
  absl::StatusOr<size_t> Read(char* buffer, size_t size);

 private:
  absl::Status NextEntry();
  absl::StatusOr<size_t> ReadFileData(char* buffer, size_t size);

  const std::vector<ContextEntry>& entries_;
  const TarOptions options_;
  size_t next_ = 0;
  bool ended_ = false;
  // Returned before anything else.
  std::string pending_;
  size_t pending_at_ = 0;
  Fd file_;
  int64_t file_left_ = 0;
};

// The header blocks of one entry, a multiple of 512 bytes. Pure.
std::string TarHeader(const ContextEntry& entry, const TarOptions& options);

}  // namespace elasticdl::docker
