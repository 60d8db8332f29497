#include "shm/death_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/blame.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

absl::StatusOr<uint64_t> StartTime(int pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  // "pid (name) state ...": the name may hold anything, so count from its end.
  const size_t name_end = text.rfind(')');
  const std::vector<std::string> fields = absl::StrSplit(
      text.substr(std::min(text.size(), name_end + 1)), ' ', absl::SkipEmpty());
  // Field 22 of the file, 19 fields after the state.
  constexpr size_t kStart = 19;
  uint64_t start = 0;
  if (name_end == std::string::npos || fields.size() <= kStart ||
      !absl::SimpleAtoi(fields[kStart], &start)) {
    return absl::InternalError(absl::StrCat("cannot understand ", path));
  }
  return start;
}

absl::StatusOr<Fd> OpenProcess(const WatchedProcess& watched) {
  const int pid = watched.process.pid;
  const absl::Status gone =
      Blame(watched.rank,
            absl::AbortedError(absl::StrCat("rank ", watched.rank, " (process ",
                                            pid, ") has ended")));
  // By number: the C library of the oldest supported systems has no wrapper.
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) {
    if (errno == ESRCH) return gone;
    return ErrnoToStatus(errno, absl::StrCat("watch process ", pid));
  }
  // Looked up after opening: if it matches, the descriptor is of that process.
  const absl::StatusOr<uint64_t> start = StartTime(pid);
  if (!start.ok() || *start != watched.process.start) return gone;
  return fd;
}

}  // namespace

absl::StatusOr<ProcessId> OwnProcess() {
  ProcessId own;
  own.pid = getpid();
  ELASTICDL_ASSIGN_OR_RETURN(own.start, StartTime(own.pid));
  return own;
}

absl::StatusOr<std::unique_ptr<DeathWatch>> DeathWatch::Start(
    const std::vector<WatchedProcess>& processes,
    std::function<void(int rank)> died) {
  std::vector<Watched> watched;
  for (const WatchedProcess& process : processes) {
    ELASTICDL_ASSIGN_OR_RETURN(Fd fd, OpenProcess(process));
    watched.push_back({process.rank, std::move(fd)});
  }
  Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoToStatus(errno, "make an eventfd");
  std::unique_ptr<DeathWatch> watch(
      new DeathWatch(std::move(watched), std::move(stop), std::move(died)));
  watch->WatchSigns(processes);
  return watch;
}

DeathWatch::DeathWatch(std::vector<Watched> watched, Fd stop,
                       std::function<void(int rank)> died)
    : watched_(std::move(watched)),
      stop_(std::move(stop)),
      died_(std::move(died)),
      thread_("edl-deathwatch", [this] { Run(); }) {}

void DeathWatch::WatchSigns(const std::vector<WatchedProcess>& processes) {
  for (const WatchedProcess& process : processes) {
    if (process.sign.fd < 0) continue;
    // One that cannot be watched still has its pidfd.
    signs_.Add(process.sign, [this, rank = process.rank] { died_(rank); })
        .status()
        .IgnoreError();
  }
}

DeathWatch::~DeathWatch() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full.
  [[maybe_unused]] const ssize_t written =
      write(stop_.get(), &one, sizeof(one));
  thread_.Join();
}

void DeathWatch::Run() {
  while (true) {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    for (const Watched& watched : watched_) {
      fds.push_back({watched.pidfd.get(), POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR
    if (fds[0].revents != 0) return;
    std::vector<Watched> alive;
    for (size_t i = 0; i < watched_.size(); ++i) {
      if (fds[i + 1].revents != 0) {
        died_(watched_[i].rank);
      } else {
        alive.push_back(std::move(watched_[i]));
      }
    }
    watched_ = std::move(alive);
  }
}

}  // namespace elasticdl::collective
