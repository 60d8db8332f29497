#include "scratch_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "layout.h"

namespace elasticdl::checkpoint::internal {
namespace {

// A cleaner may remove a new folder before it is locked. If that happens more
// often than this in a row, something else is wrong.
constexpr int kMaxRemovals = 16;
// If nothing was written for this long, no save is running. And if one were, it
// would only fail, because its files are gone.
constexpr absl::Duration kForeignAge = absl::Hours(24);

enum class Lock { kHeld, kBusy, kUnsupported };

Lock TryLock(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return Lock::kHeld;
  return errno == EWOULDBLOCK ? Lock::kBusy : Lock::kUnsupported;
}

Fd OpenFolder(const std::string& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

bool StillThere(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

absl::Status RenameTo(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("rename ", from, " to ", to));
}

std::string ReadNodeName() {
  // Not the host name: containers on one machine have different ones, and many
  // machines are called localhost.
  const auto boot = ReadFile("/proc/sys/kernel/random/boot_id");
  if (boot.ok()) {
    std::string name;
    for (const char c : *boot) {
      if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) name += c;
    }
    if (name.size() >= 12) return name.substr(0, 12);
  }
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return absl::StrFormat("%08x", Crc32c(host));
}

absl::Time ModifiedAt(const struct stat& info) {
  return absl::TimeFromTimespec(info.st_mtim);
}

// When something in the folder last changed. It has no sub-folders.
absl::Time LastChange(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::InfiniteFuture();
  absl::Time last = ModifiedAt(info);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return absl::InfiniteFuture();
  for (const std::string& name : *names) {
    if (stat(JoinPath(path, name).c_str(), &info) != 0) continue;
    last = std::max(last, ModifiedAt(info));
  }
  return last;
}

}  // namespace

const std::string& NodeName() {
  static const auto* name = new std::string(ReadNodeName());
  return *name;
}

ScratchFolder::ScratchFolder(std::string path, Fd lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())),
      lock_(std::move(other.lock_)) {}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  absl::Status status = RemoveTree(path_);
  if (!status.ok() && lock_.valid()) {
    // It may have failed for lack of file descriptors; one is free now.
    lock_.Reset();
    status = RemoveTree(path_);
  }
  if (!status.ok()) LogWarning("checkpoint: ", status.ToString());
}

absl::StatusOr<ScratchFolder> ScratchFolder::Create(const std::string& dir,
                                                    const std::string& label) {
  for (int i = 0; i < kMaxRemovals; ++i) {
    std::string path = JoinPath(
        dir, absl::StrCat(kTemporaryPrefix, label, "-", NodeName(), "-XXXXXX"));
    if (mkdtemp(path.data()) == nullptr) {
      return ErrnoToStatus(errno, absl::StrCat("make folder in ", dir));
    }
    Fd fd = OpenFolder(path);
    if (!fd.valid() && errno != ENOENT) {
      const absl::Status status =
          ErrnoToStatus(errno, absl::StrCat("open ", path));
      rmdir(path.c_str());
      return status;
    }
    if (!fd.valid() || TryLock(fd.get()) == Lock::kBusy ||
        !StillThere(fd.get())) {
      continue;
    }
    ScratchFolder folder(std::move(path), std::move(fd));
    if (fchmod(folder.lock_.get(), 0755) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("chmod ", folder.path_));
    }
    return folder;
  }
  return absl::UnavailableError(absl::StrCat("make folder in ", dir,
                                             ": removed by others ",
                                             kMaxRemovals, " times in a row"));
}

absl::Status ScratchFolder::Publish(const std::string& final_path) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.rename"));
  // Fails if the name exists.
  if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_path.c_str(),
                RENAME_NOREPLACE) == 0) {
    path_.clear();
    return absl::OkStatus();
  }
  if (errno == EEXIST || errno == ENOTEMPTY) {
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_path.c_str(),
                  RENAME_EXCHANGE) == 0) {
      return absl::OkStatus();
    }
  }
  // Some network file systems do not support these flags: use two plain
  // renames. Between them the old version has no name.
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    return ErrnoToStatus(errno,
                         absl::StrCat("rename ", path_, " to ", final_path));
  }
  const std::string aside = path_ + "-old";
  const bool replaces = FileExists(final_path);
  if (replaces) ELASTICDL_RETURN_IF_ERROR(RenameTo(final_path, aside));
  if (absl::Status status = RenameTo(path_, final_path); !status.ok()) {
    if (replaces) RenameTo(aside, final_path).IgnoreError();
    return status;
  }
  path_ = replaces ? aside : std::string();
  return absl::OkStatus();
}

void RemoveAbandoned(const std::string& dir, absl::Time now) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, kTemporaryPrefix)) continue;
    const std::string path = JoinPath(dir, name);
    const Fd fd = OpenFolder(path);
    if (!fd.valid()) continue;
    const Lock lock = TryLock(fd.get());
    if (lock != Lock::kHeld && lock != Lock::kUnsupported) continue;
    // Locks of other machines are not visible, so only its age tells that
    // nobody is writing to it.
    const bool foreign =
        lock == Lock::kUnsupported ||
        !absl::StrContains(name, absl::StrCat("-", NodeName(), "-"));
    if (foreign && now - LastChange(fd.get(), path) < kForeignAge) continue;
    const absl::Status status = RemoveTree(path);
    if (status.ok()) {
      LogInfo("checkpoint: removed ", path, ", left by a process that died");
    } else {
      LogWarning("checkpoint: ", status.ToString());
    }
  }
}

absl::Status DeleteVersion(const std::string& dir, const std::string& path) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.delete"));
  ELASTICDL_ASSIGN_OR_RETURN(const ScratchFolder grave,
                             ScratchFolder::Create(dir, "delete"));
  // Replaces the empty folder, so the version disappears in one step.
  ELASTICDL_RETURN_IF_ERROR(RenameTo(path, grave.path()));
  return Failpoint("checkpoint.delete");
}

}  // namespace elasticdl::checkpoint::internal
