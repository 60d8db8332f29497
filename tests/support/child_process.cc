#include "support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/check.h"
#include "elasticdl/process.h"

namespace elasticdl::test {
namespace {

bool WaitReadable(int fd, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    pollfd event = {fd, POLLIN, 0};
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    const int n =
        poll(&event, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (n > 0) return true;
  }
}

}  // namespace

ChildProcess::ChildProcess(const Options& options) : log_(options.log) {
  const Fd out(
      open(out_path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  ELASTICDL_CHECK(out.valid());
  process::Options start;
  start.argv = options.argv;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    start.environment.emplace_back(*entry);
  }
  start.environment.insert(start.environment.end(), options.environment.begin(),
                           options.environment.end());
  start.log_file = err_path();
  start.output_fd = out.get();
  absl::StatusOr<process::Process> started = process::Start(start);
  if (!started.ok()) {
    dprintf(STDERR_FILENO, "%s\n", started.status().ToString().c_str());
  }
  ELASTICDL_CHECK(started.ok());
  pid_ = started->pid;
  pidfd_ = std::move(started->pidfd);
}

ChildProcess::~ChildProcess() {
  if (exit_code_.has_value()) return;
  Signal(SIGKILL);
  Wait();
}

void ChildProcess::Signal(int signal) const {
  if (!exit_code_.has_value()) kill(pid_, signal);
}

std::optional<int> ChildProcess::Wait(absl::Duration timeout) {
  if (exit_code_.has_value()) return exit_code_;
  if (!WaitReadable(pidfd_.get(), timeout)) return std::nullopt;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) ELASTICDL_CHECK(errno == EINTR);
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

std::string ChildProcess::out() const {
  return ReadFile(out_path()).value_or("");
}
std::string ChildProcess::err() const {
  return ReadFile(err_path()).value_or("");
}

bool WaitForEnd(pid_t pid, absl::Duration timeout) {
  const Fd pidfd = process::OpenPidfd(pid);
  return !pidfd.valid() || WaitReadable(pidfd.get(), timeout);
}

Orphanage::Orphanage() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Kept pending for sigtimedwait; children of process::Start unblock it.
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
}

Orphanage::~Orphanage() {
  // What a failed test has left; children of those that die come to us in turn.
  do {
    const std::string children =
        ReadFile(absl::StrCat("/proc/self/task/", getpid(), "/children"))
            .value_or("");
    for (absl::string_view word : absl::StrSplit(children, ' ')) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) kill(child, SIGKILL);
    }
  } while (waitpid(-1, nullptr, 0) > 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

bool Orphanage::WaitForNobody(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  while (true) {
    pid_t reaped;
    do {
      reaped = waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    if (reaped < 0 && errno == ECHILD) return true;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    const timespec wait = absl::ToTimespec(left);
    sigtimedwait(&mask, nullptr, &wait);
  }
}

}  // namespace elasticdl::test
