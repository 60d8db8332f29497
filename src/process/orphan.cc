#include "orphan.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace elasticdl::process {
namespace {

struct Ends {
  Fd read;
  Fd write;
};

bool MakePipe(Ends* made) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *made = {Fd(ends[0]), Fd(ends[1])};
  return true;
}

// Unlike a pipe, it can be written to without a signal when nobody reads it any
// more.
bool MakeSockets(Ends* made) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return false;
  }
  *made = {Fd(ends[0]), Fd(ends[1])};
  return true;
}

bool ReadWhole(int fd, void* to, size_t bytes) {
  ssize_t got;
  do {
    got = read(fd, to, bytes);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(bytes);
}

// In the process between; returns in the new process only.
void ForkAgain(const Ends& number) {
  const pid_t child = fork();
  if (child < 0) _exit(errno);
  if (child > 0) _exit(0);
  // From here on its group can be killed.
  setpgid(0, 0);
  const pid_t self = getpid();
  if (write(number.write.get(), &self, sizeof(self)) != sizeof(self)) {
    _exit(127);
  }
}

}  // namespace

Orphan ForkOrphan() {
  Orphan orphan;
  Ends number;
  Ends go;
  if (!MakePipe(&number) || !MakeSockets(&go)) return orphan;
  const pid_t between = fork();
  if (between < 0) return orphan;
  if (between == 0) {
    // Else it would wait for itself.
    go.write.Reset();
    ForkAgain(number);
    orphan.pid = 0;
    orphan.go = std::move(go.read);
    return orphan;
  }
  number.write.Reset();
  int status = 0;
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  pid_t child = 0;
  if (ReadWhole(number.read.get(), &child, sizeof(child))) {
    orphan.pid = child;
    orphan.go = std::move(go.write);
  } else {
    errno = WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status)
                                                          : ECHILD;
  }
  return orphan;
}

void LetGo(const Orphan& orphan) {
  // One that was killed meanwhile does not hear it.
  [[maybe_unused]] const ssize_t n =
      send(orphan.go.get(), "g", 1, MSG_NOSIGNAL);
}

bool AwaitGo(const Orphan& orphan) {
  char word = 0;
  return ReadWhole(orphan.go.get(), &word, 1);
}

}  // namespace elasticdl::process
