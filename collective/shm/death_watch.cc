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

absl::StatusOr<std::shared_ptr<DeathWatch>> DeathWatch::Start(
    std::vector<WatchedProcess> processes) {
  std::vector<Fd> pidfds;
  for (const WatchedProcess& process : processes) {
    ELASTICDL_ASSIGN_OR_RETURN(Fd fd, OpenProcess(process));
    pidfds.push_back(std::move(fd));
  }
  Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoToStatus(errno, "make an eventfd");
  std::shared_ptr<DeathWatch> watch(
      new DeathWatch(std::move(processes), std::move(pidfds), std::move(stop)));
  watch->WatchSigns();
  return watch;
}

DeathWatch::DeathWatch(std::vector<WatchedProcess> processes,
                       std::vector<Fd> pidfds, Fd stop)
    : processes_(std::move(processes)), stop_(std::move(stop)) {
  for (size_t i = 0; i < pidfds.size(); ++i) {
    pidfds_.emplace(i, std::move(pidfds[i]));
  }
  thread_ = Thread("edl-deathwatch", [this] { Run(); });
}

void DeathWatch::WatchSigns() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].sign.fd < 0) continue;
    // One that cannot be watched still has its pidfd.
    signs_.Add(processes_[i].sign, [this, i] { OnDeath(i); })
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

int64_t DeathWatch::Follow(Died died) {
  MutexLock lock(mu_);
  died_ = std::move(died);
  for (const size_t index : dead_) died_(processes_[index]);
  return ++following_;
}

void DeathWatch::Unfollow(int64_t number) {
  MutexLock lock(mu_);
  if (number == following_) died_ = nullptr;
}

void DeathWatch::OnDeath(size_t index) {
  MutexLock lock(mu_);
  dead_.insert(index);
  if (died_) died_(processes_[index]);
}

void DeathWatch::Run() {
  while (true) {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    std::vector<size_t> places = {0};
    for (const auto& [index, pidfd] : pidfds_) {
      fds.push_back({pidfd.get(), POLLIN, 0});
      places.push_back(index);
    }
    if (poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR
    if (fds[0].revents != 0) return;
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      OnDeath(places[i]);
      pidfds_.erase(places[i]);
    }
  }
}

}  // namespace elasticdl::collective
