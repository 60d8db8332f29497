#include "local/launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/parent_reaper.h"
#include "elasticdl/process.h"
#include "local/client.h"
#include "local/relaunch.h"

namespace elasticdl::cli {
namespace {

// Blocks the signals that end a program and makes them readable. The destructor
// restores this thread's mask.
class EndSignals {
 public:
  EndSignals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&mask, signal);
    // nohup has it ignored; a blocked signal would come all the same.
    struct sigaction hang_up = {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&mask, SIGHUP);
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

int WaitStatus(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return W_EXITCODE(1, 0);
  }
  return status;
}

// Orphans of the master become children of this process, so that they can be
// found and killed.
class Subreaper {
 public:
  Subreaper()
      : works_(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0), strangers_(Children()) {}
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  bool works() const { return works_; }

  // Kills and reaps all children, and their children as they are inherited,
  // except those in `spared` and what these have started. A shell may have
  // given this process children of its own (`elasticdl train > >(tee log)`).
  void Kill(const std::set<pid_t>& spared) {
    while (true) {
      std::vector<pid_t> killed;
      for (const pid_t child : Children()) {
        if (strangers_.count(child) > 0 || spared.count(child) > 0 ||
            spared.count(getpgid(child)) > 0) {
          continue;
        }
        if (kill(child, SIGKILL) == 0) {
          killed.push_back(child);
        } else {
          strangers_.insert(child);
        }
      }
      if (killed.empty()) return;
      for (const pid_t child : killed) WaitStatus(child);
    }
  }

 private:
  static std::set<pid_t> Children() {
    std::set<pid_t> children;
    const auto text =
        ReadFile(absl::StrCat("/proc/self/task/", getpid(), "/children"));
    if (!text.ok()) return children;
    for (absl::string_view word : absl::StrSplit(*text, ' ')) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) children.insert(child);
    }
    return children;
  }

  const bool works_;
  std::set<pid_t> strangers_;
};

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Reap(pid_t pid) { return ExitCode(WaitStatus(pid)); }

int CannotStart(const absl::Status& status) {
  std::fprintf(stderr, "elasticdl: cannot start the master: %s\n",
               std::string(status.message()).c_str());
  return 1;
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
      kill(master.pid, signals.Take() == SIGINT ? SIGINT : SIGTERM);
      return Reap(master.pid);
    }
    char events[4096];
    [[maybe_unused]] const ssize_t n = read(changes.get(), events, 4096);
  }
  return 0;
}

// The master of a job that this process waits for. Thread-compatible.
class AttachedMaster {
 public:
  AttachedMaster(const LaunchOptions& options, const jobdir::JobDir& dir,
                 process::Options start)
      : options_(options),
        dir_(dir),
        start_(std::move(start)),
        rule_(options.relaunch_rule) {}

  // Its exit code, when it has ended for good.
  int Run();

 private:
  // Its wait status.
  absl::StatusOr<int> RunOnce();
  int Wait(const process::Process& master);
  int AsPassedOn(int signal) const;
  void PassOn(int signal, pid_t master);
  void Tell(const std::string& text) const;
  // After it was killed: everything is as the next one expects it. False: there
  // is no next one.
  bool Prepare(int signal);
  process::Options NextStart() const;

  const LaunchOptions& options_;
  const jobdir::JobDir& dir_;
  const process::Options start_;
  EndSignals signals_;
  Subreaper subreaper_;
  // With options_.relaunch.
  std::optional<process::ParentReaper> reaper_;
  RelaunchRule rule_;
  int killed_by_ = 0;
  bool asked_ = false;
};

int AttachedMaster::Run() {
  if (options_.relaunch && subreaper_.works()) {
    auto reaper = process::ParentReaper::Create();
    if (!reaper.ok()) return CannotStart(reaper.status());
    reaper_ = *std::move(reaper);
    dir_.WritePid("client", getpid()).IgnoreError();
  }
  int exit_code = 1;
  while (true) {
    const absl::StatusOr<int> status = RunOnce();
    if (!status.ok()) {
      exit_code = CannotStart(status.status());
      break;
    }
    exit_code = ExitCode(*status);
    if (!WIFSIGNALED(*status) || !Prepare(WTERMSIG(*status))) break;
  }
  subreaper_.Kill({});
  return exit_code;
}

process::Options AttachedMaster::NextStart() const {
  process::Options start = start_;
  if (!reaper_.has_value()) return start;
  start.keep_fds.push_back(reaper_->tell_fd());
  start.environment.push_back(
      absl::StrCat(jobdir::kEndedFdVariable, "=", reaper_->tell_fd()));
  if (rule_.restarts() > 0) {
    start.environment.push_back(absl::StrCat(
        jobdir::kRestartVariable, "=", rule_.restarts(), " ", killed_by_));
  }
  return start;
}

absl::StatusOr<int> AttachedMaster::RunOnce() {
  ELASTICDL_ASSIGN_OR_RETURN(const process::Process master,
                             process::Start(NextStart()));
  dir_.WritePid("master", master.pid).IgnoreError();
  return Wait(master);
}

int AttachedMaster::Wait(const process::Process& master) {
  while (true) {
    pollfd fds[] = {{master.pidfd.get(), POLLIN, 0},
                    {signals_.fd(), POLLIN, 0},
                    {reaper_.has_value() ? reaper_->fd() : -1, POLLIN, 0}};
    if (poll(fds, 3, -1) < 0) continue;
    if (reaper_.has_value()) reaper_->Reap();
    if (fds[0].revents != 0) return WaitStatus(master.pid);
    if (fds[1].revents != 0) PassOn(signals_.Take(), master.pid);
  }
}

// The master tells a Ctrl-C from the others. In an allocation SIGTERM would
// suspend the job.
int AttachedMaster::AsPassedOn(int signal) const {
  return options_.on_slurm || signal == SIGINT ? SIGINT : SIGTERM;
}

void AttachedMaster::PassOn(int signal, pid_t master) {
  if (signal == 0) return;
  // Slurm repeats SIGTERM; it kills what does not end in time by itself.
  if (options_.on_slurm && signal == SIGTERM) {
    kill(master, SIGTERM);
    return;
  }
  if (!asked_) {
    std::fputs("\nstopping the job; once more to kill it\n", stderr);
  }
  kill(master, std::exchange(asked_, true) ? SIGKILL : AsPassedOn(signal));
}

// Also in the master's log, which goes on after it.
void AttachedMaster::Tell(const std::string& text) const {
  std::fprintf(stderr, "\nelasticdl: %s\n", text.c_str());
  if (!options_.plain_log) return;
  const Fd log(
      open(dir_.LogFile("master").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  WriteAll(log.get(), absl::StrCat("elasticdl: ", text, "\n"), "log")
      .IgnoreError();
}

bool AttachedMaster::Prepare(int signal) {
  if (!reaper_.has_value() || asked_ || dir_.IsStopping()) return false;
  const auto delay = rule_.OnKilled(Clock::Real().Now());
  if (!delay.has_value()) {
    Tell(absl::StrCat("the master was killed (signal ", signal,
                      ") and is not started again: too often within a few "
                      "minutes"));
    return false;
  }
  killed_by_ = signal;
  Tell(absl::StrCat("the master was killed (signal ", signal,
                    ") and is started again"));
  // What it had seen the end of, and what it has not written down.
  reaper_->Reap();
  std::set<pid_t> pods;
  for (const auto& [name, pid] : dir_.ReadPids()) {
    if (name != "client" && name != "master") pods.insert(pid);
  }
  subreaper_.Kill(pods);
  // A signal is passed on to the next master, which can end the job in order.
  pollfd fd = {signals_.fd(), POLLIN, 0};
  poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(*delay)));
  return true;
}

}  // namespace

absl::StatusOr<ReservedPort> ReservePort() {
  ReservedPort reserved;
  reserved.socket.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!reserved.socket.valid()) return ErrnoToStatus(errno, "socket");
  // The one that listens on the port has this option too, and is a process of
  // the same user: nobody else can take the port while there is no master.
  const int yes = 1;
  setsockopt(reserved.socket.get(), SOL_SOCKET, SO_REUSEPORT, &yes,
             sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(reserved.socket.get(), any, size) != 0 ||
      getsockname(reserved.socket.get(), any, &size) != 0) {
    return ErrnoToStatus(errno, "bind a port of 127.0.0.1");
  }
  reserved.port = ntohs(address.sin_port);
  return reserved;
}

int LaunchMaster(const LaunchOptions& options, const jobdir::JobDir& dir,
                 const jobdir::JobLock& lock) {
  // What ends must be waited for, whoever has started this program.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  process::Options start;
  start.argv = {options.program};
  start.argv.insert(start.argv.end(), options.args.begin(), options.args.end());
  start.environment = options.environment;
  start.environment.push_back(
      absl::StrCat(jobdir::kLockFdVariable, "=", lock.fd()));
  start.log_file = dir.LogFile("master");
  start.keep_fds = {lock.fd()};
  start.blocked_signals = {SIGINT, SIGTERM};
  start.die_with_parent = !options.detach;
  std::fflush(stdout);
  if (!options.detach) {
    start.output_fd = STDOUT_FILENO;
    return AttachedMaster(options, dir, std::move(start)).Run();
  }
  EndSignals signals;
  const absl::StatusOr<process::Process> master = process::Start(start);
  if (!master.ok()) return CannotStart(master.status());
  dir.WritePid("master", master->pid).IgnoreError();
  return WaitStarted(*master, dir, signals);
}

}  // namespace elasticdl::cli
