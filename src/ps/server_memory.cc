// A server whose memory is nearly used up (memory_pressure.h).
#include <algorithm>

#include "absl/strings/str_format.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "memory_pressure.h"
#include "server_impl.h"

namespace elasticdl::ps {

void ServerImpl::NoteMemory(const v1::PsEntry& entry, size_t before) {
  // What is staged goes again when its version is made.
  const bool grows =
      (entry.has_push() && !entry.push().stage()) || entry.has_commit();
  if (!grows || !state_.NearlyFull()) return;
  const size_t bytes = state_.Bytes();
  const absl::Duration wait = SlowDownFor(before, bytes, options_.memory_limit);
  const absl::Time now = Clock::Real().Now();
  slow_until_ = absl::ToUnixNanos(
      std::min(now + kMostSlowDown,
               std::max(now, absl::FromUnixNanos(slow_until_)) + wait));
  if (warned_) return;
  warned_ = true;
  LogWarning(absl::StrFormat(
      "server %d uses %d of the %d bytes that it may use (--ps_memory_limit): "
      "tables with --embedding_max_rows grow no more, pushes that add rows to "
      "others are slowed down, and beyond the limit they are refused and the "
      "job fails",
      options_.server, bytes, options_.memory_limit));
}

void ServerImpl::SlowDown() {
  const absl::Time until = absl::FromUnixNanos(slow_until_);
  const Clock& clock = Clock::Real();
  if (until <= clock.Now()) return;
  MutexLock lock(mu_);
  while (!ended_) {
    const absl::Duration left = until - clock.Now();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mu_, left);
  }
}

}  // namespace elasticdl::ps
