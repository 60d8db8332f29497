#include "local/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/process.h"
#include "local/client.h"

namespace elasticdl::cli {
namespace {

// Blocks the signals that end a program and makes them readable. The destructor
// restores this thread's mask.
class EndSignals {
 public:
  EndSignals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&mask, signal);
    pthread_sigmask(SIG_BLOCK, &mask, &before_);
    fd_.Reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  int fd() const { return fd_.get(); }
  // Takes a pending signal; 0 = none.
  int Take() {
    signalfd_siginfo info;
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info)
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t before_;
  Fd fd_;
};

// Orphans of the master become children of this process, so that they can be
// found and killed.
class Subreaper {
 public:
  Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  // Kills and reaps all children, and their children as they are inherited.
  void KillAll() {
    while (true) {
      for (const pid_t child : Children()) kill(child, SIGKILL);
      if (waitpid(-1, nullptr, 0) < 0 && errno != EINTR) return;
    }
  }

 private:
  static std::vector<pid_t> Children() {
    std::vector<pid_t> children;
    const auto text =
        ReadFile(absl::StrCat("/proc/self/task/", getpid(), "/children"));
    if (!text.ok()) return children;
    for (absl::string_view word : absl::StrSplit(*text, ' ')) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) children.push_back(child);
    }
    return children;
  }
};

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
  return ExitCode(status);
}

int WaitAttached(const process::Process& master, EndSignals& signals,
                 bool on_slurm) {
  bool asked = false;
  while (true) {
    pollfd fds[] = {{master.pidfd.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return Reap(master.pid);
    const int signal = signals.Take();
    if (signal == 0) continue;
    // Slurm repeats SIGTERM; it kills what does not end in time by itself.
    if (on_slurm && signal == SIGTERM) {
      kill(master.pid, SIGTERM);
      continue;
    }
    if (!asked) {
      std::fputs("\nstopping the job; once more to kill it\n", stderr);
    }
    // In an allocation SIGTERM would suspend the job.
    const int gentle = on_slurm ? SIGINT : SIGTERM;
    kill(master.pid, std::exchange(asked, true) ? SIGKILL : gentle);
  }
}

// Waits until the master has ended, or has published the address of its status
// page, which it does last before the job runs.
int WaitStarted(const process::Process& master, const jobdir::JobDir& dir,
                EndSignals& signals) {
  const Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  inotify_add_watch(changes.get(), dir.path().c_str(), IN_MOVED_TO);
  while (!dir.ReadHttpAddress().ok()) {
    pollfd fds[] = {{master.pidfd.get(), POLLIN, 0},
                    {changes.get(), POLLIN, 0},
                    {signals.fd(), POLLIN, 0}};
    if (poll(fds, 3, -1) < 0) continue;
    if (fds[0].revents != 0) return Reap(master.pid);
    if (fds[2].revents != 0) {
      kill(master.pid, SIGTERM);
      return Reap(master.pid);
    }
    char events[4096];
    [[maybe_unused]] const ssize_t n = read(changes.get(), events, 4096);
  }
  return 0;
}

}  // namespace

int LaunchMaster(const LaunchOptions& options, const jobdir::JobDir& dir,
                 const jobdir::JobLock& lock) {
  EndSignals signals;
  std::optional<Subreaper> reaper;
  if (!options.detach) reaper.emplace();
  process::Options start;
  start.argv = {options.program};
  start.argv.insert(start.argv.end(), options.args.begin(), options.args.end());
  start.environment = options.environment;
  start.environment.push_back(
      absl::StrCat(jobdir::kLockFdVariable, "=", lock.fd()));
  start.log_file = dir.LogFile("master");
  start.keep_fds = {lock.fd()};
  start.die_with_parent = !options.detach;
  if (!options.detach) start.output_fd = STDOUT_FILENO;
  std::fflush(stdout);
  absl::StatusOr<process::Process> master = process::Start(start);
  if (!master.ok()) {
    std::fprintf(stderr, "elasticdl: cannot start the master: %s\n",
                 std::string(master.status().message()).c_str());
    return 1;
  }
  dir.WritePid("master", master->pid).IgnoreError();
  if (options.detach) return WaitStarted(*master, dir, signals);
  const int exit_code = WaitAttached(*master, signals, options.on_slurm);
  reaper->KillAll();
  return exit_code;
}

}  // namespace elasticdl::cli
