// Members meet on sockets of ours, which show for as long as the world lives
// when one of them dies. Then rank 0 sends them the id by which NCCL connects
// them; the backend for memory of the host connects by its own offers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backends.h"
#include "core/blame.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "nccl/communicator.h"
#include "nccl/offers.h"
#include "nccl/plugin.h"
#include "nccl/runtime.h"
#include "nccl/world.h"
#include "tcp/meeting.h"

namespace elasticdl::collective {
namespace {

// Ends the other backend's Connect when the world ends.
class ConnectorAborter final : public MemberWatch::Sleeper {
 public:
  ConnectorAborter(Connector& connector, MemberWatch& watch)
      : connector_(connector), watch_(watch) {
    watch_.Add(this);
    if (!watch_.Check().ok()) Wake();
  }
  ~ConnectorAborter() override { watch_.Remove(this); }
  ConnectorAborter(const ConnectorAborter&) = delete;
  ConnectorAborter& operator=(const ConnectorAborter&) = delete;

  void Wake() override {
    connector_.Abort(std::string(watch_.Check().message()));
  }

 private:
  Connector& connector_;
  MemberWatch& watch_;
};

class NcclConnector final : public Connector {
 public:
  // Runtime and meeting are null if this member has no NCCL.
  NcclConnector(const WorldSpec& world, std::shared_ptr<NcclRuntime> runtime,
                std::unique_ptr<Meeting> meeting,
                std::unique_ptr<Connector> other)
      : world_(world),
        runtime_(std::move(runtime)),
        other_(std::move(other)),
        meeting_(std::move(meeting)),
        offer_(SealNcclOffer(world_, MakeOffer())) {}

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    if (meeting_ != nullptr) meeting_->Abort(reason);
    other_->Abort(reason);
  }

 private:
  NcclOffer MakeOffer() const;
  // The id of the attempt, from rank 0 to all.
  absl::StatusOr<std::string> ShareId(TcpMesh& mesh, Deadline& deadline);
  absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(
      const std::vector<std::string>& others,
      const std::shared_ptr<MemberWatch>& watch, Deadline& deadline);
  // Connects the other backend while NCCL connects in the background.
  absl::StatusOr<std::unique_ptr<Communicator>> ConnectHost(
      const std::vector<std::string>& others, MemberWatch& watch,
      Deadline& deadline);

  const WorldSpec world_;
  // Null, or shared with all worlds of this process.
  const std::shared_ptr<NcclRuntime> runtime_;
  const std::unique_ptr<Connector> other_;
  const std::unique_ptr<Meeting> meeting_;
  const std::string offer_;
};

NcclOffer NcclConnector::MakeOffer() const {
  NcclOffer offer;
  offer.other = other_->offer();
  if (runtime_ == nullptr) return offer;
  offer.address = meeting_->address();
  offer.nccl_version = runtime_->facts().nccl_version;
  offer.gpu = runtime_->gpu();
  return offer;
}

// Only now that all are there: NCCL starts a thread and a listener for each id,
// which end when all ranks have come.
absl::StatusOr<std::string> NcclConnector::ShareId(TcpMesh& mesh,
                                                   Deadline& deadline) {
  std::string id(ELASTICDL_NCCL_ID_BYTES, '\0');
  if (world_.rank != 0) {
    ELASTICDL_RETURN_IF_ERROR(
        mesh.Move({}, {{0, id.data(), id.size()}}, deadline));
    return id;
  }
  absl::StatusOr<std::string> made = runtime_->MakeId();
  if (!made.ok()) return MarkNcclFailure(made.status());
  std::vector<MeshSend> sends;
  for (int rank = 1; rank < world_.size(); ++rank) {
    sends.push_back({rank, made->data(), made->size()});
  }
  ELASTICDL_RETURN_IF_ERROR(mesh.Move(std::move(sends), {}, deadline));
  return made;
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclConnector::ConnectHost(
    const std::vector<std::string>& others, MemberWatch& watch,
    Deadline& deadline) {
  const ConnectorAborter aborter(*other_, watch);
  auto host = other_->Connect(others, deadline.Left());
  if (host.ok()) return host;
  ELASTICDL_RETURN_IF_ERROR(watch.Check());
  return host;
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclConnector::ConnectNccl(
    const std::vector<std::string>& others,
    const std::shared_ptr<MemberWatch>& watch, Deadline& deadline) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string id,
                             ShareId(watch->mesh(), deadline));
  watch->Start();
  auto world = std::make_shared<NcclWorld>(
      *runtime_, watch, NcclWorld::Options{id, world_.rank, world_.size()});
  auto host = ConnectHost(others, *watch, deadline);
  absl::Status status = host.status();
  if (status.ok()) status = world->AwaitReady(deadline);
  if (status.ok()) status = watch->AwaitReady(deadline);
  if (!status.ok()) {
    world->End(status);
    return status;
  }
  runtime_->CountWorld();
  return std::make_unique<NcclCommunicator>(NcclCommunicator::Parts{
      runtime_, watch, *std::move(host), std::move(world)});
}

absl::StatusOr<std::unique_ptr<Communicator>> NcclConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  deadline.nanos();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<NcclOffer> opened,
                             OpenNcclOffers(world_, offers));
  std::vector<std::string> others;
  std::vector<TcpAddress> addresses;
  for (const NcclOffer& offer : opened) {
    others.push_back(offer.other);
    addresses.push_back(offer.address);
  }
  const absl::Status usable = CheckNcclOffers(world_, opened);
  if (!usable.ok()) {
    if (runtime_ != nullptr) {
      LogWarning("world ", world_.generation, ": ", world_.size(),
                 " members without NCCL: ", usable.message());
    }
    return other_->Connect(others, deadline.Left());
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::shared_ptr<MemberWatch> watch,
                             meeting_->Meet(addresses, deadline));
  auto made = ConnectNccl(others, watch, deadline);
  meeting_->End();
  if (made.ok()) {
    LogInfo("world ", world_.generation, ": ", world_.size(),
            " members over NCCL");
  }
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginNccl(
    const WorldSpec& world, const std::string& host,
    std::shared_ptr<NcclRuntime> runtime, std::unique_ptr<Connector> other) {
  std::unique_ptr<Meeting> meeting;
  if (runtime != nullptr) {
    ELASTICDL_ASSIGN_OR_RETURN(TcpListener listener, Listen(host));
    meeting = std::make_unique<Meeting>(world, std::move(listener));
  }
  return std::make_unique<NcclConnector>(world, std::move(runtime),
                                         std::move(meeting), std::move(other));
}

}  // namespace elasticdl::collective
