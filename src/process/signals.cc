#include "elasticdl/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "elasticdl/common/check.h"

namespace elasticdl::process {

SignalWatcher::SignalWatcher(std::initializer_list<int> signals) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : signals) sigaddset(&mask, signal);
  ELASTICDL_CHECK(pthread_sigmask(SIG_BLOCK, &mask, nullptr) == 0);
  signals_.Reset(signalfd(-1, &mask, SFD_CLOEXEC));
  stop_.Reset(eventfd(0, EFD_CLOEXEC));
  ELASTICDL_CHECK(signals_.valid() && stop_.valid());
}

void SignalWatcher::Stop() {
  const uint64_t one = 1;
  ELASTICDL_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.Join();
}

void SignalWatcher::Start(std::function<void(int signal)> handler) {
  thread_ = Thread("signals", [this, handler = std::move(handler)] {
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (true) {
      if (poll(fds, 2, -1) < 0) continue;
      if (fds[1].revents != 0) return;
      signalfd_siginfo info;
      if (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
        handler(static_cast<int>(info.ssi_signo));
      }
    }
  });
}

}  // namespace elasticdl::process
