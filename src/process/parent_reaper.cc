#include "elasticdl/parent_reaper.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/status.h"

namespace elasticdl::process {
namespace {

// Numbers of the fields of /proc/PID/stat after the name (proc(5)).
constexpr size_t kState = 0;
constexpr size_t kParent = 1;
constexpr size_t kGroup = 2;
constexpr size_t kExitCode = 49;

// Empty when there is no such process.
std::vector<std::string> ReadStat(pid_t pid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!text.ok()) return {};
  // The name is in parentheses and may contain anything.
  const size_t end = text->rfind(')');
  if (end == std::string::npos) return {};
  return absl::StrSplit(text->substr(end + 1), absl::ByAnyChar(" \n"),
                        absl::SkipEmpty());
}

bool Is(const std::vector<std::string>& fields, size_t field, pid_t value) {
  pid_t number = 0;
  return fields.size() > field && absl::SimpleAtoi(fields[field], &number) &&
         number == value;
}

}  // namespace

ParentReaper::ParentReaper(Fd read, Fd write)
    : read_(std::move(read)), write_(std::move(write)) {}

absl::StatusOr<ParentReaper> ParentReaper::Create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoToStatus(errno, "pipe");
  }
  return ParentReaper(Fd(ends[0]), Fd(ends[1]));
}

void ParentReaper::Reap() {
  pid_t pid = 0;
  // Each number was written at once, so it is read at once.
  while (read(read_.get(), &pid, sizeof(pid)) == sizeof(pid)) {
    if (pid <= 0) continue;
    waitpid(pid, nullptr, WNOHANG);
    groups_.insert(pid);
  }
  for (auto it = groups_.begin(); it != groups_.end();) {
    const pid_t reaped = waitpid(-*it, nullptr, WNOHANG);
    if (reaped < 0) {
      it = groups_.erase(it);
    } else if (reaped == 0) {
      ++it;
    }
  }
}

void TellEnded(int fd, pid_t pid) {
  ssize_t n;
  do {
    n = write(fd, &pid, sizeof(pid));
  } while (n < 0 && errno == EINTR);
}

std::optional<int> ExitStatusOf(pid_t pid) {
  const std::vector<std::string> fields = ReadStat(pid);
  int status = 0;
  if (fields.size() <= kExitCode || fields[kState] != "Z" ||
      !absl::SimpleAtoi(fields[kExitCode], &status)) {
    return std::nullopt;
  }
  return status;
}

bool IsStartedChild(pid_t pid, pid_t parent) {
  const std::vector<std::string> fields = ReadStat(pid);
  return Is(fields, kParent, parent) && Is(fields, kGroup, pid);
}

}  // namespace elasticdl::process
