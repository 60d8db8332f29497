// The offer of a TCP world is where this member listens.
#include <algorithm>
#include <utility>

#include "core/backends.h"
#include "core/mesh_communicator.h"
#include "core/offer.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "tcp/rendezvous.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "tcp";

class TcpConnector final : public Connector {
 public:
  TcpConnector(const WorldSpec& world, TcpListener listener)
      : world_(world), listener_(std::move(listener)) {
    std::string payload;
    AppendAddress(listener_.address, payload);
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
  const std::vector<int> peers =
      Peers(world_.size(), world_.rank, world_.full_mesh);
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<TcpAddress> addresses,
                             OpenAddressOffers(world_, kKind, peers, offers));
  // On return nobody can dial any more, even after an error.
  const TcpListener listener = std::move(listener_);
  if (!listener.socket.valid()) {
    return absl::FailedPreconditionError("Connect was called before");
  }
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.connect"));
  TcpRendezvous rendezvous(world_, listener, peers, abort_);
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<Fd> sockets,
                             rendezvous.Run(addresses, deadline));
  const bool one_host = std::all_of(
      world_.hosts.begin(), world_.hosts.end(),
      [this](const std::string& host) { return host == world_.hosts[0]; });
  for (const Fd& socket : sockets) {
    if (one_host && socket.valid()) SetLargeBuffers(socket.get());
  }
  return std::make_unique<MeshCommunicator>(
      std::make_unique<TcpMesh>(world_.rank, std::move(sockets)),
      /*full=*/world_.size() <= world_.full_mesh, one_host);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginTcp(const WorldSpec& world,
                                                    const std::string& host) {
  ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
  return std::make_unique<TcpConnector>(world, std::move(listener));
}

}  // namespace elasticdl::collective
