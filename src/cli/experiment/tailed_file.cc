#include "experiment/tailed_file.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cli {

absl::StatusOr<TailedFile> TailedFile::Create(const std::string& path) {
  TailedFile made;
  // It must be there to be watched.
  made.file_.Reset(open(
      path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!made.file_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", path));
  }
  made.changes_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!made.changes_.valid() ||
      inotify_add_watch(made.changes_.get(), path.c_str(), IN_MODIFY) < 0) {
    return ErrnoToStatus(errno, absl::StrCat("watch ", path));
  }
  return made;
}

std::string TailedFile::ReadNew() {
  char notes[4096];
  while (read(changes_.get(), notes, sizeof(notes)) > 0) {
  }
  std::string bytes;
  char buffer[65536];
  while (true) {
    const ssize_t count = pread(file_.get(), buffer, sizeof(buffer), read_);
    if (count <= 0) return bytes;
    read_ += count;
    bytes.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace elasticdl::cli
