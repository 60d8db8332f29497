// The offer of a member of an MPI world: where it listens, its place in the
// universe, and the offer of the backend that is used if not all members are in
// one universe.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/backends.h"
#include "core/mesh_communicator.h"
#include "core/offer.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "mpi/mesh.h"
#include "mpi/universe.h"
#include "tcp/meeting.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "mpi";

struct MpiOffer {
  TcpAddress address;
  // Empty: MPI cannot be used there.
  std::string universe;
  int32_t mpi_rank = -1;
  // Of the other backend.
  std::string other;
};

absl::StatusOr<std::vector<MpiOffer>> Decode(
    const WorldSpec& world, const std::vector<std::string>& offers) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> payloads,
                             OpenOffers(world, kKind, offers));
  std::vector<MpiOffer> decoded(payloads.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    absl::string_view rest = payloads[rank];
    MpiOffer& offer = decoded[rank];
    if (!TakeAddress(rest, offer.address) || !TakeText(rest, offer.universe) ||
        !TakeRaw(rest, offer.mpi_rank) || !TakeText(rest, offer.other) ||
        !rest.empty()) {
      return DamagedOffer(rank);
    }
  }
  return decoded;
}

// Are all of them in one universe, each with a rank of its own? The same on all
// members.
bool IsOneUniverse(const std::vector<MpiOffer>& offers) {
  std::set<int32_t> ranks;
  for (const MpiOffer& offer : offers) {
    if (offer.universe.empty() || offer.universe != offers[0].universe) {
      return false;
    }
    ranks.insert(offer.mpi_rank);
  }
  return ranks.size() == offers.size();
}

class MpiConnector final : public Connector {
 public:
  MpiConnector(const WorldSpec& world, TcpListener listener,
               std::shared_ptr<MpiUniverse> universe,
               std::unique_ptr<Connector> other)
      : world_(world),
        universe_(std::move(universe)),
        other_(std::move(other)),
        meeting_(world, std::move(listener)) {
    std::string id;
    // Tags are numbers of generations.
    if (universe_ != nullptr && world.generation <= universe_->largest_tag()) {
      id = universe_->id();
    }
    std::string payload;
    AppendAddress(meeting_.address(), payload);
    AppendText(id, payload);
    AppendRaw(int32_t{id.empty() ? -1 : universe_->rank()}, payload);
    AppendText(other_->offer(), payload);
    offer_ = SealOffer(world_, kKind, payload);
  }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    meeting_.Abort(reason);
    other_->Abort(reason);
  }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> ConnectMpi(
      const std::vector<MpiOffer>& offers, Deadline& deadline);

  const WorldSpec world_;
  // Null, or shared with all worlds of this process.
  const std::shared_ptr<MpiUniverse> universe_;
  const std::unique_ptr<Connector> other_;
  Meeting meeting_;
  std::string offer_;
};

absl::StatusOr<std::unique_ptr<Communicator>> MpiConnector::ConnectMpi(
    const std::vector<MpiOffer>& offers, Deadline& deadline) {
  std::vector<TcpAddress> addresses;
  std::vector<int> mpi_ranks;
  for (const MpiOffer& offer : offers) {
    addresses.push_back(offer.address);
    mpi_ranks.push_back(offer.mpi_rank);
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::shared_ptr<MemberWatch> watch,
                             meeting_.Meet(addresses, deadline));
  watch->Start();
  const absl::Status ready = watch->AwaitReady(deadline);
  meeting_.End();
  ELASTICDL_RETURN_IF_ERROR(ready);
  universe_->CountWorld();
  LogInfo("world ", world_.generation, ": ", world_.size(),
          " members over MPI");
  return std::make_unique<MeshCommunicator>(std::make_unique<MpiMesh>(
      world_.rank, universe_, watch, std::move(mpi_ranks),
      static_cast<int>(world_.generation)));
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<MpiOffer> decoded,
                             Decode(world_, offers));
  if (IsOneUniverse(decoded)) return ConnectMpi(decoded, deadline);
  LogInfo("world ", world_.generation, ": ", world_.size(),
          " members, not all in one MPI universe: without MPI");
  std::vector<std::string> others;
  others.reserve(decoded.size());
  for (const MpiOffer& offer : decoded) others.push_back(offer.other);
  return other_->Connect(others, deadline.Left());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginMpi(
    const WorldSpec& world, const std::string& host,
    std::shared_ptr<MpiUniverse> universe, std::unique_ptr<Connector> other) {
  ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
  return std::make_unique<MpiConnector>(world, std::move(listener),
                                        std::move(universe), std::move(other));
}

}  // namespace elasticdl::collective
