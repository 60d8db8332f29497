// Taking a job's folder for a new run, and the token.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"

namespace elasticdl::jobdir {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kLeastTokenSize = 16;

absl::Status MoveIfThere(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
    return ErrnoToStatus(errno, absl::StrCat("rename ", from, " to ", to));
  }
  return absl::OkStatus();
}

// What the run before left: logs and events are kept once, the rest goes.
// Whoever found an old address or token would wait for a master that is gone.
absl::Status RotateOldRun(const JobDir& dir) {
  for (const char* stale : {"address", "http_address", "pids", "token",
                            "journal", "owner", "ps", "stopping"}) {
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(JoinPath(dir.path(), stale)));
  }
  if (!FileExists(dir.LogsDir()) && !FileExists(dir.EventsFile())) {
    return absl::OkStatus();
  }
  const std::string previous = JoinPath(dir.path(), "previous");
  ELASTICDL_RETURN_IF_ERROR(RemoveTree(previous));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(previous, 0700));
  ELASTICDL_RETURN_IF_ERROR(
      MoveIfThere(dir.LogsDir(), JoinPath(previous, "logs")));
  return MoveIfThere(dir.EventsFile(), JoinPath(previous, "events.jsonl"));
}

}  // namespace

absl::StatusOr<std::string> NewToken() {
  std::string bytes(kTokenBytes, '\0');
  size_t used = 0;
  while (used < bytes.size()) {
    const ssize_t n = getrandom(&bytes[used], bytes.size() - used, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, "getrandom");
    used += static_cast<size_t>(n);
  }
  return absl::BytesToHexString(bytes);
}

absl::Status CheckToken(const std::string& token) {
  if (token.size() < kLeastTokenSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the token has ", token.size(), " characters; at least ",
        kLeastTokenSize, " are needed, e.g. the output of 'openssl rand -hex ",
        "32'"));
  }
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(
          "the token has characters that are not printable, or spaces");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JobLock> JobLock::Take(const JobDir& dir) {
  ELASTICDL_RETURN_IF_ERROR(ValidateJobName(dir.job_name()));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir.path(), 0700));
  Fd fd(open(dir.LockFile().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", dir.LockFile()));
  }
  // Of the open file, not of the process: the lock can be handed to a child
  // with the descriptor (Adopt), and ends with the last holder, however that
  // dies.
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) {
      return absl::AlreadyExistsError(absl::StrCat(
          "a job named ", dir.job_name(), " is running on this machine (",
          dir.path(), "); choose another --job_name or stop it: elasticdl ",
          "stop --job_name=", dir.job_name()));
    }
    return ErrnoToStatus(errno, absl::StrCat("lock ", dir.LockFile()));
  }
  return JobLock(std::move(fd));
}

absl::Status JobLock::Prepare(const JobDir& dir,
                              const std::string& owner) const {
  ELASTICDL_RETURN_IF_ERROR(RotateOldRun(dir));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir.LogsDir(), 0700));
  ELASTICDL_RETURN_IF_ERROR(
      MakeDirectories(JoinPath(dir.path(), "pids"), 0700));
  if (!owner.empty()) {
    ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(dir.OwnerFile(), owner));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string token, NewToken());
  return dir.WriteToken(token);
}

absl::StatusOr<JobLock> JobLock::Acquire(const JobDir& dir,
                                         const std::string& owner) {
  ELASTICDL_ASSIGN_OR_RETURN(JobLock lock, Take(dir));
  ELASTICDL_RETURN_IF_ERROR(lock.Prepare(dir, owner));
  return lock;
}

absl::StatusOr<JobLock> JobLock::AcquireAgain(const JobDir& dir,
                                              const std::string& owner) {
  ELASTICDL_ASSIGN_OR_RETURN(JobLock lock, Take(dir));
  // Another job may have used the name meanwhile, and its data is not ours. A
  // file that cannot be read now says nothing: what is there must not be
  // removed.
  absl::StatusOr<std::string> found = ReadFile(dir.OwnerFile());
  if (absl::IsNotFound(found.status())) found = "";
  ELASTICDL_RETURN_IF_ERROR(found.status());
  if (*found != owner || !FileExists(dir.JournalFile())) {
    ELASTICDL_RETURN_IF_ERROR(lock.Prepare(dir, owner));
  }
  return lock;
}

absl::StatusOr<JobLock> JobLock::Adopt(const JobDir& dir, int fd) {
  // A lock of a file that was removed since keeps nobody out.
  struct stat ours;
  struct stat theirs;
  if (fstat(fd, &ours) != 0 || stat(dir.LockFile().c_str(), &theirs) != 0 ||
      ours.st_ino != theirs.st_ino || ours.st_dev != theirs.st_dev) {
    return absl::InvalidArgumentError(absl::StrCat(
        "descriptor ", fd, " is not the lock of the job in ", dir.path()));
  }
  // It was passed on without. Pods that outlive the master must not hold it.
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return JobLock(Fd(fd));
}

}  // namespace elasticdl::jobdir
