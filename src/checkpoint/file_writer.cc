#include "file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::checkpoint::internal {
namespace {

// Small pieces are gathered; large ones are written in parts of this size, so
// that the checksum finds them in the CPU's cache.
constexpr size_t kWriteBytes = 256 << 10;

absl::Status Sync(int fd, const std::string& path) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.fsync"));
  if (fsync(fd) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("fsync ", path));
}

}  // namespace

FileWriter::FileWriter(const std::string& folder, std::string name)
    : path_(JoinPath(folder, name)) {
  entry_.name = std::move(name);
  fd_.Reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd_.valid()) {
    status_ = ErrnoToStatus(errno, absl::StrCat("create ", path_));
  }
}

void FileWriter::Append(absl::string_view data) {
  if (buffer_.size() + data.size() <= kWriteBytes) {
    buffer_.append(data.data(), data.size());
    return;
  }
  Flush();
  for (; data.size() > kWriteBytes; data.remove_prefix(kWriteBytes)) {
    Write(data.substr(0, kWriteBytes));
  }
  buffer_.append(data.data(), data.size());
}

absl::StatusOr<ManifestFile> FileWriter::Finish() {
  Flush();
  if (status_.ok()) status_ = Sync(fd_.get(), path_);
  // Some file systems report a full disk only here.
  if (fd_.valid() && close(fd_.Release()) != 0 && status_.ok()) {
    status_ = ErrnoToStatus(errno, absl::StrCat("close ", path_));
  }
  if (!status_.ok()) return status_;
  return entry_;
}

void FileWriter::Flush() {
  if (!buffer_.empty()) Write(buffer_);
  buffer_.clear();
}

void FileWriter::Write(absl::string_view data) {
  if (status_.ok()) status_ = Failpoint("checkpoint.write");
  if (status_.ok()) status_ = WriteAll(fd_.get(), data, path_);
  entry_.crc32c = ExtendCrc32c(entry_.crc32c, data);
  entry_.bytes += static_cast<int64_t>(data.size());
}

}  // namespace elasticdl::checkpoint::internal
