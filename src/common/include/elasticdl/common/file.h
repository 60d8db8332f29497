// Files: reading whole files, durable atomic writes, appending JSON lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

// Owns a file descriptor. Move-only; -1 is empty.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Whole contents. NOT_FOUND, PERMISSION_DENIED, … with the path in the message.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes all of `data` to `fd`, handling short writes and EINTR. `what` names
// the file in an error (RESOURCE_EXHAUSTED when the disk is full).
absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what);

// Durable and atomic: writes to a temporary name next to it, syncs, renames,
// and syncs the folder. `mode` is the file's permission bits.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view data,
                             uint32_t mode = 0644);

absl::Status SyncDirectory(const std::string& path);

// mkdir -p.
absl::Status MakeDirectories(const std::string& path, uint32_t mode = 0755);

// rm -rf; a missing path is not an error.
absl::Status RemoveTree(const std::string& path);

bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);

// Names (not paths) in a folder, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

std::string JoinPath(absl::string_view a, absl::string_view b);

// Appends whole lines to a file; each line reaches the kernel in one write, so
// that a killed process never leaves a partial line before a later one. If the
// disk has no room for a line, none of it is kept. Thread-compatible.
class LineWriter {
 public:
  // An empty path gives a writer that drops everything.
  static absl::StatusOr<LineWriter> Open(const std::string& path);
  LineWriter() = default;
  // Adds the newline.
  absl::Status Append(absl::string_view line);
  // The length of the file, provided that nobody else writes to it. Failed
  // writes do not count.
  int64_t bytes() const { return bytes_; }

 private:
  Fd fd_;
  std::string path_;
  int64_t bytes_ = 0;
};

}  // namespace elasticdl
