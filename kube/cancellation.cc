// Cancellation: a flag that poll() can wait for.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// Without a descriptor (the process has none left) poll() ignores the -1, and
// the flag still ends the call at its next step.
Cancellation::Cancellation() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Cancellation::~Cancellation() {
  if (fd_ >= 0) close(fd_);
}

void Cancellation::Cancel() {
  cancelled_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof(one));
}

}  // namespace elasticdl::kube
