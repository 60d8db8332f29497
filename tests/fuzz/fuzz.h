// What the fuzz targets share. A target is one function of bytes; libFuzzer
// calls it with bytes that it makes up (`make fuzz`), and `make test` with the
// files of corpus/<target> (replay_main.cc).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "elasticdl/common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace elasticdl::fuzz {

inline absl::string_view ToText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Bytes as a file, for code that opens a path. In memory: a fuzzer makes many
// thousands per second.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view bytes) : fd_(memfd_create("fuzz", 0)) {
    ELASTICDL_CHECK(fd_ >= 0);
    ELASTICDL_CHECK(write(fd_, bytes.data(), bytes.size()) ==
                    static_cast<ssize_t>(bytes.size()));
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  const int fd_;
  std::string path_;
};

}  // namespace elasticdl::fuzz
