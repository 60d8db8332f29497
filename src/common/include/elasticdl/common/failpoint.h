// Failpoints: named places in product code where a test can make something go
// wrong. Off unless armed by InitFailpoints (flag --failpoints), at the cost of
// one relaxed atomic load per visit.
//
//   ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.rename"));
//
// Specification: `[worker:]name=action[@first][xcount]`, several joined by `;`.
//   worker  a worker's id: only this worker is hit (default: every process)
//   action  error | kill | stop | exit(code) | delay(ms)
//           error: Failpoint returns UNAVAILABLE; kill: SIGKILL to this
//           process; stop: SIGSTOP; exit(code): _exit(code); delay(ms): this
//           thread waits this many milliseconds, which slows down a job so that
//           a test can act on it in time
//   first   the visit at which it starts, from 1 (default 1)
//   count   for how many visits (default: all that follow)
// e.g. `checkpoint.rename=kill@2;2:worker.reduce=error@1x3`.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

// Replaces the armed failpoints of this process, which is worker `worker_id`
// (-1: none); an empty text disarms all. INVALID_ARGUMENT names the part that
// does not parse.
absl::Status InitFailpoints(absl::string_view text, int64_t worker_id = -1);

namespace internal {
extern std::atomic<bool> failpoints_armed;
absl::Status VisitFailpoint(absl::string_view name);
}  // namespace internal

// Visits a failpoint: OK unless a test armed `name` for this visit.
inline absl::Status Failpoint(absl::string_view name) {
  if (!internal::failpoints_armed.load(std::memory_order_relaxed)) {
    return absl::OkStatus();
  }
  return internal::VisitFailpoint(name);
}

}  // namespace elasticdl
