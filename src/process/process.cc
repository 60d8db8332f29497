#include "elasticdl/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/status.h"
#include "orphan.h"
#include "start_options.h"

namespace elasticdl::process {
namespace {

// Everything the child needs, made before fork: between fork and exec only
// async-signal-safe calls are allowed, since other threads may have held locks.
struct ChildPlan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int input;
  int output;
  int error;
  int error_pipe;
  // Null: that of this process.
  const char* folder;
  // Whose child it must be; 0: it may outlive its parent.
  pid_t parent;
  bool own_session;
  const std::vector<int>* keep_fds;
  const std::vector<int>* blocked_signals;
};

[[noreturn]] void FailChild(int error_pipe) {
  const int error = errno;
  // Nothing to do if this fails: the parent then sees exit code 127.
  [[maybe_unused]] const ssize_t n = write(error_pipe, &error, sizeof(error));
  _exit(127);
}

void ResetSignals(const std::vector<int>& blocked) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, &action, nullptr);
  }
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : blocked) sigaddset(&mask, signal);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.parent != 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) FailChild(plan.error_pipe);
    // The parent may have died before prctl.
    if (getppid() != plan.parent) _exit(127);
  }
  if (plan.own_session) {
    setsid();
  } else {
    setpgid(0, 0);
  }
  ResetSignals(*plan.blocked_signals);
  if (dup2(plan.input, 0) < 0 || dup2(plan.output, 1) < 0 ||
      dup2(plan.error, 2) < 0) {
    FailChild(plan.error_pipe);
  }
  if (plan.folder != nullptr && chdir(plan.folder) != 0) {
    FailChild(plan.error_pipe);
  }
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int fd : *plan.keep_fds) fcntl(fd, F_SETFD, 0);
  execve(plan.path, plan.argv, plan.envp);
  FailChild(plan.error_pipe);
}

absl::StatusOr<std::string> FindProgram(
    const std::string& name, const std::vector<std::string>& environment) {
  if (name.empty()) return absl::InvalidArgumentError("start: empty program");
  if (absl::StrContains(name, '/')) return name;
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& entry : environment) {
    if (absl::StartsWith(entry, "PATH=")) path = entry.substr(5);
  }
  for (absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = JoinPath(folder.empty() ? "." : folder, name);
    if (access(file.c_str(), X_OK) == 0 && !IsDirectory(file)) return file;
  }
  return absl::NotFoundError(
      absl::StrCat("start ", name, ": not found in PATH ", path));
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status StartError(int error, const std::string& program) {
  const std::string what = absl::StrCat("start ", program);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(what, ": no such program"));
    case EACCES:
    case ENOEXEC:
    case EISDIR:
    case E2BIG:
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", ErrnoToStatus(error, "execve").message()));
    default:
      return ErrnoToStatus(error, what);
  }
}

// Above 2, so that the child's dup2 onto 0-2 overwrites none of them even when
// this process was started with those closed.
Fd MoveAbove2(Fd fd) {
  if (fd.get() > 2 || !fd.valid()) return fd;
  return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
}

absl::StatusOr<Fd> Open(const std::string& path, int flags) {
  Fd fd = MoveAbove2(Fd(open(path.c_str(), flags | O_CLOEXEC, 0644)));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  return fd;
}

// The errno that the child sent before it gave up, or 0 once it has executed
// its program (which closes the pipe).
int ReadChildError(int fd) {
  int error = 0;
  ssize_t n;
  do {
    n = read(fd, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  return n == sizeof(error) ? error : 0;
}

void Reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Like fork(), or, for a child of another process, once it belongs to that one:
// it is told to go on when its number is known.
pid_t Fork(bool for_subreaper) {
  if (!for_subreaper) return fork();
  const Orphan orphan = ForkOrphan();
  if (orphan.pid == 0 && !AwaitGo(orphan)) _exit(127);
  if (orphan.pid > 0) LetGo(orphan);
  return orphan.pid;
}

}  // namespace

std::vector<std::string> MergeEnvironment(const std::vector<std::string>& all) {
  std::vector<std::string> merged;
  for (const std::string& entry : all) {
    const std::string key = entry.substr(0, entry.find('=')) + "=";
    bool replaced = false;
    for (std::string& other : merged) {
      if (!absl::StartsWith(other, key)) continue;
      other = entry;
      replaced = true;
    }
    if (!replaced) merged.push_back(entry);
  }
  return merged;
}

absl::StatusOr<Fd> OpenLog(const Options& options) {
  return Open(options.log_file.empty() ? "/dev/null" : options.log_file,
              O_WRONLY | O_CREAT | O_APPEND);
}

Fd OpenPidfd(pid_t pid) {
  // glibc 2.36 declares pidfd_open without extern "C".
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

absl::StatusOr<Process> Start(const Options& options) {
  if (options.argv.empty()) {
    return absl::InvalidArgumentError("start: empty argv");
  }
  std::vector<std::string> args = options.argv;
  std::vector<std::string> environment = MergeEnvironment(options.environment);
  ELASTICDL_ASSIGN_OR_RETURN(const std::string path,
                             FindProgram(args[0], environment));
  const std::vector<char*> argv = Pointers(args);
  const std::vector<char*> envp = Pointers(environment);

  ELASTICDL_ASSIGN_OR_RETURN(const Fd input, Open("/dev/null", O_RDONLY));
  ELASTICDL_ASSIGN_OR_RETURN(const Fd log, OpenLog(options));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe");
  Fd read_end(ends[0]);
  Fd write_end = MoveAbove2(Fd(ends[1]));

  ChildPlan plan;
  plan.path = path.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.input = options.input_fd >= 0 ? options.input_fd : input.get();
  plan.error = options.error_fd >= 0 ? options.error_fd : log.get();
  plan.folder = options.folder.empty() ? nullptr : options.folder.c_str();
  plan.output = options.output_fd >= 0 ? options.output_fd : log.get();
  plan.error_pipe = write_end.get();
  const pid_t parent = options.parent != 0 ? options.parent : getpid();
  plan.parent = options.die_with_parent ? parent : 0;
  plan.own_session = options.own_session;
  plan.keep_fds = &options.keep_fds;
  plan.blocked_signals = &options.blocked_signals;
  const pid_t pid = Fork(/*for_subreaper=*/options.parent != 0);
  if (pid < 0) return ErrnoToStatus(errno, absl::StrCat("fork for ", path));
  if (pid == 0) RunChild(plan);

  write_end.Reset();
  const int error = ReadChildError(read_end.get());
  if (error != 0) {
    Reap(pid);
    return StartError(error, path);
  }
  Process process;
  process.pid = pid;
  process.pidfd = OpenPidfd(pid);
  if (!process.pidfd.valid()) {
    const absl::Status status =
        ErrnoToStatus(errno, absl::StrCat("pidfd_open ", pid));
    kill(pid, SIGKILL);
    Reap(pid);
    return status;
  }
  return process;
}

}  // namespace elasticdl::process
