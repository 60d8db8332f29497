#include "elasticdl/sentinel.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/status.h"

namespace elasticdl::process {
namespace {

constexpr int kStartMs = 10000;

// As the kernel writes them (getdents64(2)).
struct Entry {
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[1];
};

// Below this line, in the sentinel, only system calls: the C library does not
// know of this process.

// -1: not a number.
int ParseNumber(const char* text) {
  int number = 0;
  if (*text == '\0') return -1;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9') return -1;
    number = 10 * number + (*text - '0');
  }
  return number;
}

void ShutDownIfConnection(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  // Of sockets of a family other than these, somebody on this host has the
  // other end.
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
      (domain == AF_INET || domain == AF_INET6)) {
    shutdown(fd, SHUT_RDWR);
  }
}

void ShutDownConnections() {
  const int folder = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY));
  if (folder < 0) {
    // No /proc here: as many as a worker may have.
    for (int fd = 3; fd < (1 << 16); ++fd) ShutDownIfConnection(fd);
    return;
  }
  alignas(Entry) std::array<char, 4096> buffer;
  int64_t got = 0;
  while ((got = syscall(SYS_getdents64, folder, buffer.data(), buffer.size())) >
         0) {
    for (int64_t at = 0; at < got;) {
      const char* const entry = buffer.data() + at;
      uint16_t length = 0;
      std::memcpy(&length, entry + offsetof(Entry, length), sizeof(length));
      const int fd = ParseNumber(entry + offsetof(Entry, name));
      if (fd >= 0) ShutDownIfConnection(fd);
      at += length;
    }
  }
}

[[noreturn]] void Guard(pid_t process, std::atomic<uint32_t>& word, int ready) {
  // If it is stopped or overlooks the end, it goes with the process all the
  // same; the files would stay open otherwise.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "edl-sentinel");
  const uint64_t one = 1;
  syscall(SYS_write, ready, &one, sizeof(one));
  if (syscall(SYS_getppid) == process && AwaitEnd(word)) {
    ShutDownConnections();
  }
  syscall(SYS_exit_group, 0);
  __builtin_unreachable();
}

}  // namespace

absl::Status StartSentinel() {
  ELASTICDL_ASSIGN_OR_RETURN(std::atomic<uint32_t>* const word, MakeOwnWord());
  const Fd ready(eventfd(0, EFD_CLOEXEC));
  if (!ready.valid()) return ErrnoToStatus(errno, "eventfd");
  const pid_t process = getpid();
  // What asks the process to end is not for the sentinel.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // No signal tells the process of its end, so that nobody waits for it.
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES, 0, 0, 0, 0));
  if (child == 0) Guard(process, *word, ready.get());
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return ErrnoToStatus(error, "clone");
  // From then on it ends with this process, whatever happens to it.
  pollfd wait = {ready.get(), POLLIN, 0};
  if (poll(&wait, 1, kStartMs) == 1) return absl::OkStatus();
  kill(child, SIGKILL);
  return absl::DeadlineExceededError("the sentinel does not start");
}

}  // namespace elasticdl::process
