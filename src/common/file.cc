#include "elasticdl/common/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl {

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path));
  }
  std::string data;
  data.resize(static_cast<size_t>(std::max<off_t>(info.st_size, 0)));
  size_t used = 0;
  while (true) {
    // Files such as those in /proc report size 0 and still have contents.
    if (used == data.size()) data.resize(used + 4096);
    const ssize_t n = read(fd.get(), &data[used], data.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("read ", path));
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  data.resize(used);
  return data;
}

absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("write ", what));
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomic(const std::string& path, absl::string_view data,
                             uint32_t mode) {
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  Fd fd(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", temporary));
  }
  absl::Status status = WriteAll(fd.get(), data, temporary);
  if (status.ok() && fsync(fd.get()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("fsync ", temporary));
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("rename to ", path));
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::Status SyncDirectory(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  if (fsync(fd.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("fsync ", path));
  }
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path, uint32_t mode) {
  if (path.empty() || IsDirectory(path)) return absl::OkStatus();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (parent != path) ELASTICDL_RETURN_IF_ERROR(MakeDirectories(parent, mode));
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, absl::StrCat("mkdir ", path));
  }
  if (!IsDirectory(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("mkdir ", path, ": exists and is not a directory"));
  }
  return absl::OkStatus();
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("remove ", path));
  }
  return absl::OkStatus();
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) {
    return ErrnoToStatus(errno, absl::StrCat("open directory ", path));
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty()) return std::string(b);
  return absl::StrCat(a, a.back() == '/' ? "" : "/", b);
}

absl::StatusOr<LineWriter> LineWriter::Open(const std::string& path) {
  LineWriter writer;
  if (path.empty()) return writer;
  writer.path_ = path;
  writer.fd_.Reset(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!writer.fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  const off_t end = lseek(writer.fd_.get(), 0, SEEK_END);
  // A pipe has no length.
  writer.bytes_ = end < 0 ? 0 : static_cast<int64_t>(end);
  return writer;
}

absl::Status LineWriter::Append(absl::string_view line) {
  if (!fd_.valid()) return absl::OkStatus();
  const off_t before = lseek(fd_.get(), 0, SEEK_END);
  absl::Status status = WriteAll(fd_.get(), absl::StrCat(line, "\n"), path_);
  if (status.ok()) {
    bytes_ += static_cast<int64_t>(line.size()) + 1;
    return status;
  }
  // Remove a partial line, unless others write to the file as well.
  if (before == bytes_ && ftruncate(fd_.get(), before) == 0) return status;
  const off_t end = lseek(fd_.get(), 0, SEEK_END);
  if (end >= 0) bytes_ = end;
  return status;
}

}  // namespace elasticdl
