// The thread of a server that shortens its log.
#include <fcntl.h>
#include <poll.h>

#include <cerrno>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "server_impl.h"

namespace elasticdl::ps {

namespace {

// A backup reads its log only if the primary is lost with it, and writing a
// snapshot costs as much on the one as on the other.
constexpr int64_t kBackupPatience = 4;

}  // namespace

bool ServerImpl::SnapshotDue() const {
  if (log_ == nullptr || !log_->WantsSnapshot()) return false;
  if (replicator_ == nullptr || replicator_->CheckPrimary().ok()) return true;
  return log_->WantsSnapshot(kBackupPatience);
}

void ServerImpl::WriteSnapshots() {
  while (true) {
    {
      MutexLock lock(mu_);
      while (!snapshot_wanted_ && !ended_) changed_.Wait(mu_);
      if (ended_) return;
      snapshot_wanted_ = false;
    }
    // Of its own: the log's may be closed by whoever begins it anew.
    Fd child_fd;
    {
      WriterMutexLock lock(state_mu_);
      if (broken_) return;
      if (!SnapshotDue()) continue;
      const absl::Status begun = log_->BeginSnapshot(state_);
      if (!begun.ok()) {
        LogWarning("no snapshot: ", begun.message());
        continue;
      }
      child_fd = Fd(fcntl(log_->snapshot_fd(), F_DUPFD_CLOEXEC, 0));
      if (!child_fd.valid()) {
        LogWarning("no snapshot: ", ErrnoToStatus(errno, "dup").message());
        log_->FinishSnapshot().IgnoreError();
        continue;
      }
    }
    // Tests end the server while the child writes, and when it has written.
    Failpoint("ps.snapshot").IgnoreError();
    pollfd waits[2] = {{child_fd.get(), POLLIN, 0},
                       {stop_event_.get(), POLLIN, 0}};
    while (poll(waits, 2, -1) < 0 && errno == EINTR) {
    }
    // The log's destructor ends the child.
    if (waits[0].revents == 0) return;
    Failpoint("ps.snapshot_written").IgnoreError();
    WriterMutexLock lock(state_mu_);
    if (broken_) return;
    // The log was begun anew by then.
    if (!log_->snapshotting()) continue;
    const absl::Status finished = log_->FinishSnapshot(
        replicator_ == nullptr ? log_->position() : replicator_->reads_from());
    if (!finished.ok()) LogWarning("no snapshot: ", finished.message());
  }
}

}  // namespace elasticdl::ps
