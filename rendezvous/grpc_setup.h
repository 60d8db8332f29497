// Process-wide gRPC settings for both ends of a stream.
#pragma once

#include <grpc/support/log.h>

#include "absl/synchronization/mutex.h"
#include "elasticdl/common/log.h"

namespace elasticdl::rendezvous {

// How much may be on its way in one stream. By default gRPC measures what the
// connection needs: it sends a ping after nearly every message, and thousands
// of workers would keep a core busy with that.
inline constexpr int kWindowBytes = 1 << 20;

inline void SetUpGrpc() {
  // Debian's Abseil is built with debug checks: whenever gRPC takes a lock
  // while it holds another, Abseil searches a graph of lock orders for cycles.
  // That costs time and could only find bugs in gRPC.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // gRPC logs an error before it returns it, with a different message. Users
  // should see only the returned error.
  gpr_set_log_function(
      [](gpr_log_func_args* args) { LogDebug("gRPC: ", args->message); });
}

}  // namespace elasticdl::rendezvous
