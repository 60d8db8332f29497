// What gRPC's locks are spared.
#pragma once

#include "absl/synchronization/mutex.h"

namespace elasticdl::rendezvous {

// Debian builds Abseil with its debug checks: every lock that gRPC takes while
// it holds another is looked up in a graph of lock orders, to find cycles in
// gRPC. For the whole process.
inline void IgnoreLockOrder() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace elasticdl::rendezvous
