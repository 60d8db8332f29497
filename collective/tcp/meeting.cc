#include "tcp/meeting.h"

#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "tcp/rendezvous.h"

namespace elasticdl::collective {

Meeting::Meeting(const WorldSpec& world, TcpListener listener)
    : world_(world),
      address_(listener.address),
      listener_(std::move(listener)) {}

void Meeting::Abort(const std::string& reason) {
  const absl::Status why = absl::AbortedError(reason);
  abort_.Raise(why);
  MutexLock lock(mu_);
  if (watch_ != nullptr) watch_->End(why);
}

void Meeting::End() {
  MutexLock lock(mu_);
  watch_.reset();
}

absl::StatusOr<std::shared_ptr<MemberWatch>> Meeting::Meet(
    const std::vector<TcpAddress>& addresses, Deadline& deadline) {
  const TcpListener listener = std::move(listener_);
  if (!listener.socket.valid()) {
    return absl::FailedPreconditionError("Connect was called before");
  }
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.connect"));
  TcpRendezvous rendezvous(world_, listener,
                           AllPeers(world_.size(), world_.rank), abort_);
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<Fd> sockets,
                             rendezvous.Run(addresses, deadline));
  auto watch = std::make_shared<MemberWatch>(
      std::make_unique<TcpMesh>(world_.rank, std::move(sockets)));
  {
    MutexLock lock(mu_);
    watch_ = watch;
  }
  // An abort before that was not told to the watch.
  if (abort_.raised()) watch->End(abort_.Check());
  return watch;
}

}  // namespace elasticdl::collective
