#include "push_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "log_frame.h"
#include "mapped_file.h"
#include "snapshot.h"

namespace elasticdl::ps {
namespace {

// Takes some seconds to replay.
constexpr int64_t kLongLogBytes = int64_t{4} << 30;
// Snapshots for which files are kept at most because somebody reads them.
constexpr size_t kMostKept = 4;

// In a forked child: only system calls. It ends with the thread that forked: a
// snapshot that came when the next server, perhaps a backup with another log,
// already uses the folder would be taken for one of its own. When memory runs
// out, the kernel is to end it and not its parent.
void BecomeSnapshotWriter(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(errno);
  if (getppid() != parent) _exit(ESRCH);
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  // Without it, everything works.
  [[maybe_unused]] const ssize_t n = write(fd, "1000", 4);
  close(fd);
}

absl::Status WriteVector(int fd, std::vector<iovec> parts,
                         const std::string& what) {
  size_t next = 0;
  while (next < parts.size()) {
    const ssize_t n =
        writev(fd, &parts[next], static_cast<int>(parts.size() - next));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("write ", what));
    auto written = static_cast<size_t>(n);
    while (next < parts.size() && written >= parts[next].iov_len) {
      written -= parts[next++].iov_len;
    }
    if (next < parts.size()) {
      parts[next].iov_base = static_cast<char*>(parts[next].iov_base) + written;
      parts[next].iov_len -= written;
    }
  }
  return absl::OkStatus();
}

constexpr char kLock[] = "lock";
// A folder for a log that cannot be read.
constexpr char kAside[] = "damaged";

// Rows are collected as long as this exists.
class Collecting {
 public:
  explicit Collecting(ServerState& state) : state_(state) {
    state_.CollectRows(true);
  }
  ~Collecting() { state_.CollectRows(false); }
  Collecting(const Collecting&) = delete;
  Collecting& operator=(const Collecting&) = delete;

 private:
  ServerState& state_;
};

// A bad entry of this many bytes is at the front of `rest`; 0: nobody knows how
// long it is. Is it one whose end, and all behind it, never reached the disk?
// File systems give zeros for such bytes. (A last entry that went bad
// otherwise, and ends with zeros by chance, is cut off, too. The master notices
// either.)
bool EndsInZeros(absl::string_view rest, size_t bytes) {
  if (bytes == 0) bytes = sizeof(FrameHead);
  // Frames lie at multiples of 8, and so do pages.
  return rest.find_first_not_of('\0', bytes - 8) == absl::string_view::npos;
}

// Later files were written to the disk although this one was not.
constexpr char kNotTheLast[] =
    " (the file is damaged, or the machine crashed before it was on the disk; "
    "the newest checkpoint has what is left)";

}  // namespace

absl::StatusOr<std::unique_ptr<PushLog>> PushLog::Open(
    Options options, ServerState::Options state_options, ServerState& state) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.dir, 0700));
  std::unique_ptr<PushLog> log(new PushLog(std::move(options)));
  const std::string lock = JoinPath(log->options_.dir, kLock);
  log->lock_ = Fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!log->lock_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", lock));
  }
  if (flock(log->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another server uses ", log->options_.dir));
  }
  ELASTICDL_RETURN_IF_ERROR(log->Recover(state_options, state));
  return log;
}

PushLog::~PushLog() {
  KillSnapshot();
  // A process that another log of this one has just forked may have the
  // descriptor still, and would keep the lock.
  if (lock_.valid()) flock(lock_.get(), LOCK_UN);
}

absl::Status PushLog::PutAside(const std::string& dir) {
  const std::string aside = JoinPath(dir, kAside);
  const bool keep = !HasAside(dir);
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(aside, 0700));
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  for (const std::string& name : names) {
    if (name == kLock || name == kAside) continue;
    const std::string path = JoinPath(dir, name);
    if (!keep) {
      ELASTICDL_RETURN_IF_ERROR(RemoveTree(path));
    } else if (rename(path.c_str(), JoinPath(aside, name).c_str()) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("put aside ", path));
    }
  }
  return absl::OkStatus();
}

bool PushLog::HasAside(const std::string& dir) {
  return IsDirectory(JoinPath(dir, kAside));
}

absl::Status PushLog::RemoveAside(const std::string& dir) {
  return RemoveTree(JoinPath(dir, kAside));
}

void PushLog::KillSnapshot() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = 0;
  child_fd_.Reset();
  unlink(scratch_.c_str());
}

std::string PushLog::PathOf(absl::string_view kind,
                            const absl::AlphaNum& number) const {
  return JoinPath(options_.dir, absl::StrCat(kind, "-", number));
}

// ---- opening ----

absl::Status PushLog::Recover(ServerState::Options state_options,
                              ServerState& state) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(options_.dir));
  std::vector<int64_t> snapshots;
  std::vector<int64_t> segments;
  for (absl::string_view name : names) {
    int64_t number = 0;
    const bool snapshot = absl::ConsumePrefix(&name, "snapshot-");
    if (!snapshot && !absl::ConsumePrefix(&name, "log-")) continue;
    if (!absl::SimpleAtoi(name, &number)) {
      // One that was never finished.
      if (snapshot) unlink(PathOf("snapshot", name).c_str());
      continue;
    }
    (snapshot ? snapshots : segments).push_back(number);
  }
  std::sort(snapshots.begin(), snapshots.end());
  std::sort(segments.begin(), segments.end());
  // A snapshot has its name only when it is complete, so a bad one is a bad
  // disk; the log that it stands for may still be there.
  int64_t oldest_needed = 0;
  for (auto it = snapshots.rbegin(); it != snapshots.rend(); ++it) {
    int64_t position = 0;
    const std::string path = PathOf("snapshot", *it);
    absl::StatusOr<ServerState> read =
        ReadSnapshot(path, state_options, position);
    if (read.ok()) {
      state = *std::move(read);
      position_ = oldest_needed = position;
      struct stat info = {};
      if (stat(path.c_str(), &info) == 0) last_snapshot_bytes_ = info.st_size;
      break;
    }
    // Anything else may go well the next time (memory, descriptors).
    if (!absl::IsDataLoss(read.status())) return read.status();
    LogWarning("skipped a snapshot: ", read.status().message());
  }
  if (!snapshots.empty() && oldest_needed == 0 && segments.empty()) {
    return absl::DataLossError(
        absl::StrCat(options_.dir, ": no snapshot can be read"));
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool last = i + 1 == segments.size();
    // Wholly before the snapshot.
    if (!last && segments[i + 1] <= position_) continue;
    if (segments[i] > position_) {
      return absl::DataLossError(absl::StrCat(options_.dir, ": entries ",
                                              position_, " to ", segments[i],
                                              " of the log are missing"));
    }
    ELASTICDL_RETURN_IF_ERROR(Replay(PathOf("log", segments[i]), last, state));
  }
  DeleteBefore(oldest_needed, oldest_needed);
  // What is still there may be read for the backup until the next snapshot but
  // one, like what is written from now on.
  cuts_ = {oldest_needed};
  return OpenSegment();
}

absl::Status PushLog::Replay(const std::string& path, bool last,
                             ServerState& state) {
  ELASTICDL_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  const absl::string_view file = mapped.view();
  size_t at = 0;
  const auto bad = [&](absl::string_view why) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", why, " at offset ", at));
  };
  std::string torn = "of an entry that was not complete";
  // Ends before the file does: threads read it.
  const Collecting collecting(state);
  while (at < file.size()) {
    Frame frame;
    const FrameResult result = ParseFrame(file.substr(at), frame);
    if (result == FrameResult::kShort) break;
    v1::PsEntry entry;
    if (result != FrameResult::kOk ||
        !entry.ParseFromArray(frame.header.data(),
                              static_cast<int>(frame.header.size()))) {
      if (!last || !EndsInZeros(file.substr(at), frame.whole.size())) {
        return bad(absl::StrCat("bad entry", last ? "" : kNotTheLast));
      }
      torn =
          "that never reached the disk: the machine crashed, and the last "
          "entries are lost";
      break;
    }
    // Before the snapshot.
    if (frame.number >= position_) {
      if (frame.number != position_) return bad("an entry is missing");
      ELASTICDL_RETURN_IF_ERROR(
          Annotate(state.CheckLogged(entry, frame.payload), path));
      ELASTICDL_RETURN_IF_ERROR(
          Annotate(state.Apply(entry, frame.payload), path));
      if (options_.replayed != nullptr) {
        ELASTICDL_RETURN_IF_ERROR(options_.replayed(position_, entry, state));
      }
      ++position_;
      bytes_ += static_cast<int64_t>(frame.whole.size());
    }
    at += frame.whole.size();
  }
  ELASTICDL_RETURN_IF_ERROR(Annotate(state.ApplyRows(), path));
  if (at == file.size()) return absl::OkStatus();
  if (!last) return bad(absl::StrCat("an entry is cut off", kNotTheLast));
  LogWarning(path, ": dropped ", file.size() - at, " bytes at offset ", at, " ",
             torn);
  if (truncate(path.c_str(), static_cast<off_t>(at)) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
  }
  return absl::OkStatus();
}

absl::Status PushLog::OpenSegment() {
  const std::string path = PathOf("log", position_);
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  // There may be one of this name: without entries. A file that was truncated,
  // even an empty one, is written to the disk when it is closed (ext4's
  // auto_da_alloc), and whoever begins the next segment waits for that.
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 ||
      (info.st_size != 0 && ftruncate(fd.get(), 0) != 0)) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
  }
  fd_ = std::move(fd);
  segment_bytes_ = 0;
  return absl::OkStatus();
}

// ---- appending ----

absl::Status PushLog::Append(absl::string_view header,
                             absl::string_view payload) {
  last_head_ = MakeFrameHead(position_, header, payload);
  return Write(FrameParts(last_head_, header, payload),
               last_head_.FrameBytes());
}

absl::Status PushLog::AppendFrame(absl::string_view frame) {
  return Write({{const_cast<char*>(frame.data()), frame.size()}}, frame.size());
}

absl::Status PushLog::Write(std::vector<iovec> parts, uint64_t bytes) {
  if (broken_) {
    return absl::DataLossError(
        absl::StrCat(options_.dir, ": half an entry is in the way"));
  }
  absl::Status written = TryWrite(parts);
  if (absl::IsResourceExhausted(written) && snapshotting()) {
    LogWarning("no snapshot: the log needs its space: ", written.message());
    KillSnapshot();
    Postpone();
    written = TryWrite(std::move(parts));
  }
  ELASTICDL_RETURN_IF_ERROR(written);
  segment_bytes_ += static_cast<int64_t>(bytes);
  bytes_ += static_cast<int64_t>(bytes);
  ++position_;
  return absl::OkStatus();
}

absl::Status PushLog::TryWrite(std::vector<iovec> parts) {
  absl::Status written = Failpoint("ps.log");
  if (written.ok()) {
    written = WriteVector(fd_.get(), std::move(parts), options_.dir);
  }
  if (written.ok()) return written;
  // What is left of it would hide what follows.
  if (ftruncate(fd_.get(), segment_bytes_) == 0) return written;
  broken_ = true;
  return absl::DataLossError(absl::StrCat(
      options_.dir,
      ": half an entry cannot be taken back: ", written.message()));
}

absl::Status PushLog::Restart(const std::string& snapshot, int64_t position) {
  KillSnapshot();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(options_.dir));
  for (const std::string& name : names) {
    const std::string path = JoinPath(options_.dir, name);
    if (name == kLock || name == kAside || path == snapshot) continue;
    if (unlink(path.c_str()) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("delete ", path));
    }
  }
  position_ = position;
  bytes_ = 0;
  last_snapshot_bytes_ = 0;
  postponed_ = 0;
  broken_ = false;
  cuts_ = {position};
  if (!snapshot.empty()) {
    const std::string path = PathOf("snapshot", position);
    struct stat info = {};
    if (rename(snapshot.c_str(), path.c_str()) != 0 ||
        stat(path.c_str(), &info) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("rename ", snapshot));
    }
    last_snapshot_bytes_ = info.st_size;
  }
  return OpenSegment();
}

// ---- snapshots ----

bool PushLog::WantsSnapshot(int64_t patience) const {
  // Writing a snapshot must not cost more than the log, and reading the log not
  // much more than reading the snapshot.
  const int64_t most = std::max(kLongLogBytes, last_snapshot_bytes_ / 2);
  const int64_t due = std::max(options_.snapshot_bytes,
                               std::min(2 * last_snapshot_bytes_, most));
  return !snapshotting() && bytes_ / patience >= due + postponed_;
}

// A large one is not to be tried in vain all the time.
void PushLog::Postpone() {
  postponed_ += std::max(options_.snapshot_bytes, last_snapshot_bytes_ / 4);
}

absl::Status PushLog::BeginSnapshot(const ServerState& state) {
  absl::Status begun = Fork(state);
  if (!begun.ok()) Postpone();
  return begun;
}

absl::Status PushLog::Fork(const ServerState& state) {
  if (broken_) return absl::DataLossError("the log is broken");
  // Made here: the child must not allocate.
  const std::string header = state.Header(position_).SerializeAsString();
  const std::vector<absl::string_view> payloads = state.Payloads();
  // Without a number at its end: not complete.
  scratch_ = PathOf("snapshot", position_) + ".new";
  const std::string path = PathOf("snapshot", position_);
  ELASTICDL_RETURN_IF_ERROR(OpenSegment());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return ErrnoToStatus(errno, "fork for a snapshot");
  if (child == 0) {
    // Other threads' locks may be held for ever here: only system calls.
    // The sockets and the lock must not outlive the parent.
    syscall(SYS_close_range, 3, ~0U, 0);
    BecomeSnapshotWriter(parent);
    int error = WriteSnapshot(scratch_, header, payloads, state);
    if (error == 0 && rename(scratch_.c_str(), path.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) unlink(scratch_.c_str());
    _exit(error);
  }
  child_ = child;
  child_position_ = position_;
  child_log_bytes_ = bytes_;
  child_fd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  if (child_fd_.valid()) return absl::OkStatus();
  absl::Status status = ErrnoToStatus(errno, "watch a snapshot");
  kill(child_, SIGKILL);
  FinishSnapshot().IgnoreError();
  return status;
}

absl::Status PushLog::FinishSnapshot(int64_t keep) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  const bool known = ended == child_;
  child_ = 0;
  child_fd_.Reset();
  struct stat written = {};
  if (!known || !WIFEXITED(status) || WEXITSTATUS(status) != 0 ||
      stat(PathOf("snapshot", child_position_).c_str(), &written) != 0) {
    Postpone();
    unlink(scratch_.c_str());
    if (known && WIFSIGNALED(status)) {
      return absl::InternalError(
          absl::StrCat("the process that writes a snapshot was killed by "
                       "signal ",
                       WTERMSIG(status)));
    }
    return ErrnoToStatus(known ? WEXITSTATUS(status) : ECHILD,
                         "write a snapshot");
  }
  postponed_ = 0;
  last_snapshot_bytes_ = written.st_size;
  bytes_ -= child_log_bytes_;
  cuts_.push_back(child_position_);
  if (cuts_.size() > kMostKept) cuts_.pop_front();
  DeleteBefore(child_position_,
               std::clamp(keep, cuts_.front(), child_position_));
  return absl::OkStatus();
}

// Every snapshot begins a new file, so that no file has entries of both sides.
// A failure costs space only, and the next one tries again.
void PushLog::DeleteBefore(int64_t snapshots, int64_t entries) {
  const auto names = ListDirectory(options_.dir);
  if (!names.ok()) return;
  for (absl::string_view name : *names) {
    absl::string_view rest = name;
    int64_t number = 0;
    const bool snapshot = absl::ConsumePrefix(&rest, "snapshot-");
    if (!snapshot && !absl::ConsumePrefix(&rest, "log-")) continue;
    if (!absl::SimpleAtoi(rest, &number) ||
        number >= (snapshot ? snapshots : entries)) {
      continue;
    }
    unlink(JoinPath(options_.dir, name).c_str());
  }
}

}  // namespace elasticdl::ps
