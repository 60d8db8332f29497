#include "client_lane.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/net/handshake.h"

namespace elasticdl::ps {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);

}  // namespace

absl::Status Client::Lane::Send(Call& call, absl::Duration timeout) {
  ELASTICDL_RETURN_IF_ERROR(Connect(timeout));
  call.request.set_number(++number_);
  return Ended(WriteMessage(*socket_, call.request, call.payload, timeout));
}

absl::Status Client::Lane::Receive(Call& call, absl::Duration timeout) {
  absl::Status read = ReadMessage(*socket_, call.reply, answer, timeout);
  if (read.ok() && call.reply.number() != call.request.number()) {
    read = absl::UnavailableError("an answer to another request");
  }
  ELASTICDL_RETURN_IF_ERROR(Ended(read));
  // It may not be the one to ask any more: the next try looks where it is.
  if (call.reply.elsewhere()) Drop();
  return absl::Status(static_cast<absl::StatusCode>(call.reply.code()),
                      call.reply.message());
}

void Client::Lane::Drop() {
  MutexLock lock(mu_);
  socket_.reset();
}

void Client::Lane::Interrupt() {
  MutexLock lock(mu_);
  ++interrupts_;
  if (socket_ != nullptr) socket_->ShutDown();
}

void Client::Lane::Cancel() {
  MutexLock lock(mu_);
  cancelled_ = true;
  if (socket_ != nullptr) socket_->ShutDown();
}

absl::Status Client::Lane::Connect(absl::Duration timeout) {
  if (socket_ != nullptr) return absl::OkStatus();
  timeout = std::min(timeout, kConnectTimeout);
  int64_t interrupts = 0;
  {
    MutexLock lock(mu_);
    interrupts = interrupts_;
  }
  ELASTICDL_ASSIGN_OR_RETURN(const net::Address address,
                             options_.find(server_, timeout));
  ELASTICDL_ASSIGN_OR_RETURN(net::Socket socket,
                             net::Socket::Connect(address, timeout));
  {
    MutexLock lock(mu_);
    if (cancelled_) return absl::CancelledError("cancelled");
    // The address may be an old one.
    if (interrupts != interrupts_) return absl::UnavailableError("it moved");
    socket_ = std::make_unique<net::Socket>(std::move(socket));
  }
  return Greeted(
      net::GreetAsDialler(*socket_, options_.secret, server_, timeout));
}

absl::Status Client::Lane::Greeted(absl::Status status) {
  const bool stranger = absl::IsPermissionDenied(status) ||
                        absl::IsInvalidArgument(status) ||
                        absl::IsFailedPrecondition(status);
  const absl::Time now = Clock::Real().Now();
  if (!stranger) {
    stranger_since_ = absl::InfiniteFuture();
  } else {
    stranger_since_ = std::min(stranger_since_, now);
    if (now - stranger_since_ < options_.stranger_patience) {
      status = absl::UnavailableError(status.message());
    }
  }
  return Ended(status);
}

absl::Status Client::Lane::Ended(const absl::Status& status) {
  if (status.ok()) return status;
  MutexLock lock(mu_);
  socket_.reset();
  return cancelled_ ? absl::CancelledError("cancelled") : status;
}

}  // namespace elasticdl::ps
