// SIGINT and SIGTERM as something to poll.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "elasticdl/common/file.h"

namespace elasticdl::cli {

// Thread-compatible. Blocks the signals for the rest of the process's life.
class ExperimentSignals {
 public:
  ExperimentSignals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&mask, signal);
    sigprocmask(SIG_BLOCK, &mask, nullptr);
    fd_.Reset(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  int fd() const { return fd_.get(); }
  // Has one come since the last call?
  bool Take() {
    signalfd_siginfo info;
    bool any = false;
    while (read(fd_.get(), &info, sizeof(info)) == sizeof(info)) any = true;
    return any;
  }

 private:
  Fd fd_;
};

}  // namespace elasticdl::cli
