// The offer of a TCP world is where this member listens.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends.h"
#include "core/blame.h"
#include "core/offer.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "tcp/communicator.h"
#include "tcp/rendezvous.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "tcp";

absl::StatusOr<TcpAddress> Decode(const WorldSpec& world, int rank,
                                  const std::string& offer) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string payload,
                             OpenOffer(world, rank, kKind, offer));
  absl::string_view rest = payload;
  TcpAddress address;
  if (!TakeText(rest, address.host) || !TakeRaw(rest, address.port) ||
      !rest.empty()) {
    return Blame(rank, absl::InvalidArgumentError(absl::StrCat(
                           "offer of rank ", rank, " is damaged")));
  }
  return address;
}

class TcpConnector final : public Connector {
 public:
  TcpConnector(const WorldSpec& world, TcpListener listener)
      : world_(world), listener_(std::move(listener)) {
    std::string payload;
    AppendText(listener_.address.host, payload);
    AppendRaw(listener_.address.port, payload);
    offer_ = SealOffer(world_, kKind, payload);
  }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    abort_.Raise(absl::AbortedError(reason));
  }

 private:
  const WorldSpec world_;
  TcpListener listener_;
  std::string offer_;
  AbortSignal abort_;
};

absl::StatusOr<std::unique_ptr<Communicator>> TcpConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  if (offers.size() != world_.hosts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(offers.size(), " offers for ", world_.size(), " members"));
  }
  std::vector<TcpAddress> addresses;
  for (int rank = 0; rank < world_.size(); ++rank) {
    ELASTICDL_ASSIGN_OR_RETURN(TcpAddress address,
                               Decode(world_, rank, offers[rank]));
    addresses.push_back(std::move(address));
  }
  // On return nobody can dial any more, even after an error.
  const TcpListener listener = std::move(listener_);
  if (!listener.socket.valid()) {
    return absl::FailedPreconditionError("Connect was called before");
  }
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.connect"));
  TcpRendezvous rendezvous(world_, listener, abort_);
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<Fd> sockets,
                             rendezvous.Run(addresses, deadline));
  return std::make_unique<TcpCommunicator>(
      std::make_unique<TcpMesh>(world_.rank, std::move(sockets)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginTcp(const WorldSpec& world,
                                                    const std::string& host) {
  ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
  return std::make_unique<TcpConnector>(world, std::move(listener));
}

}  // namespace elasticdl::collective
