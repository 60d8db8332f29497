#include "elasticdl/sentinel.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"

namespace elasticdl::process {
namespace {

// PIDFD_THREAD, which Debian 12's headers do not have: a pidfd of one thread
// (Linux 6.9).
constexpr unsigned kPidfdThread = O_EXCL;

// Of a process that dies, the first thread may have given up its files already
// while another one, which frees the memory, still has them. So each thread is
// asked.
Fd OpenThread(pid_t thread, pid_t process) {
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, thread, kPidfdThread)));
  if (fd.valid() || thread != process) return fd;
  return OpenPidfd(process);
}

bool IsConnection(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
         (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
}

bool IsSocket(const std::string& link) {
  char target[64];
  const ssize_t n = readlink(link.c_str(), target, sizeof(target));
  return n > 0 &&
         absl::StartsWith(absl::string_view(target, static_cast<size_t>(n)),
                          "socket:");
}

struct Cut {
  int connections = 0;
  // Nothing was missed: it had its files until the end of the look.
  bool complete = false;
};

absl::StatusOr<Cut> CutThread(pid_t process, pid_t thread) {
  Cut cut;
  const Fd pidfd = OpenThread(thread, process);
  // It has ended, or the kernel knows no pidfds of threads.
  if (!pidfd.valid()) return cut;
  const std::string folder =
      absl::StrCat("/proc/", process, "/task/", thread, "/fd");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return cut;
  for (const std::string& name : *names) {
    int number = 0;
    if (!absl::SimpleAtoi(name, &number) || !IsSocket(JoinPath(folder, name))) {
      continue;
    }
    const Fd copy(
        static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
    if (copy.valid()) {
      if (IsConnection(copy.get())) {
        shutdown(copy.get(), SHUT_RDWR);
        ++cut.connections;
      }
    } else if (errno == ESRCH) {
      // It has just given its files up.
      return cut;
    } else if (errno != EBADF) {
      return ErrnoToStatus(errno, "take a socket of a dying process");
    }
  }
  cut.complete = !names->empty();
  return cut;
}

// Waits for all children that have ended. The exit code of `program` if it is
// one of them.
std::optional<int> Reap(pid_t program) {
  std::optional<int> code;
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != program) continue;
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code;
}

}  // namespace

absl::StatusOr<int> ShutDownConnections(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> threads,
                             ListDirectory(folder));
  int connections = 0;
  for (const std::string& name : threads) {
    pid_t thread = 0;
    if (!absl::SimpleAtoi(name, &thread)) continue;
    ELASTICDL_ASSIGN_OR_RETURN(const Cut cut, CutThread(pid, thread));
    // All threads share the files.
    connections = std::max(connections, cut.connections);
    if (cut.complete) break;
  }
  return connections;
}

absl::StatusOr<int> RunSentinel(const std::vector<std::string>& argv) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&mask, signal);
  }
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  const Fd signals(signalfd(-1, &mask, SFD_CLOEXEC));
  if (!signals.valid()) return ErrnoToStatus(errno, "signalfd");
  // Processes that the program leaves behind come here, also where the sentinel
  // is not the first process of a pid namespace.
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  Options options;
  options.argv = argv;
  options.environment = InheritedEnvironment();
  options.input_fd = STDIN_FILENO;
  options.output_fd = STDOUT_FILENO;
  options.error_fd = STDERR_FILENO;
  options.own_session = false;
  // Without a life sign the program runs all the same.
  absl::StatusOr<GivenLifeSign> given = MakeGivenLifeSign();
  if (given.ok()) {
    options.keep_fds = {given->fd.get()};
    options.environment.push_back(
        absl::StrCat(kLifeSignVariable, "=", given->fd.get()));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const Process program, Start(options));

  LifeWatch watch;
  if (given.ok()) {
    const auto added = watch.Add(given->sign, [pid = program.pid] {
      const absl::StatusOr<int> cut = ShutDownConnections(pid);
      if (!cut.ok()) {
        LogInfo("the connections of process ", pid,
                " end when its memory is free: ", cut.status().message());
      }
    });
    if (!added.ok()) given = added.status();
  }
  if (!given.ok()) {
    LogInfo("no life sign for ", argv[0], ": ", given.status().message());
  }

  while (true) {
    signalfd_siginfo info;
    const ssize_t n = read(signals.get(), &info, sizeof(info));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(info)) return ErrnoToStatus(errno, "read a signal");
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) {
      kill(program.pid, signal);
      continue;
    }
    if (const std::optional<int> code = Reap(program.pid)) return *code;
  }
}

}  // namespace elasticdl::process
