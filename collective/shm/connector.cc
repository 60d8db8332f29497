// Makes a shared-memory world: rank 0 makes the segment and offers it, the
// others open it.
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backends.h"
#include "core/blame.h"
#include "core/offer.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "shm/communicator.h"
#include "shm/death_watch.h"
#include "shm/segment.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "shm";

// What a member's offer says.
struct ShmOffer {
  ProcessId process;
  // Its pid is that of `process`.
  LifeSign sign;
  // The segment: of rank 0 only.
  int32_t fd = -1;
  std::string id;
};

std::string Encode(const ShmOffer& offer) {
  std::string text;
  AppendRaw(offer.process.pid, text);
  AppendRaw(offer.process.start, text);
  AppendRaw(offer.sign.fd, text);
  AppendText(offer.sign.id, text);
  AppendRaw(offer.fd, text);
  AppendText(offer.id, text);
  return text;
}

absl::StatusOr<ShmOffer> Decode(const WorldSpec& world, int rank,
                                const std::string& bytes) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string payload,
                             OpenOffer(world, rank, kKind, bytes));
  absl::string_view rest = payload;
  ShmOffer offer;
  const bool complete =
      TakeRaw(rest, offer.process.pid) && TakeRaw(rest, offer.process.start) &&
      TakeRaw(rest, offer.sign.fd) && TakeText(rest, offer.sign.id) &&
      TakeRaw(rest, offer.fd) && TakeText(rest, offer.id) && rest.empty();
  if (!complete || (rank == 0 && offer.id.size() != kShmIdBytes)) {
    return Blame(rank, absl::InvalidArgumentError(absl::StrCat(
                           "offer of rank ", rank, " is damaged")));
  }
  offer.sign.pid = offer.process.pid;
  return offer;
}

class ShmConnector final : public Connector {
 public:
  static absl::StatusOr<std::unique_ptr<Connector>> Begin(
      const WorldSpec& world) {
    if (world.size() > kMaxShmMembers) {
      return absl::InvalidArgumentError(
          absl::StrCat("backend shm is for up to ", kMaxShmMembers,
                       " members on a host, not ", world.size()));
    }
    ShmOffer own;
    ELASTICDL_ASSIGN_OR_RETURN(own.process, OwnProcess());
    // Without one, the others learn of this one's death a little later.
    if (auto sign = OwnLifeSign(); sign.ok()) own.sign = *std::move(sign);
    std::unique_ptr<ShmWorld> made;
    if (world.rank == 0) {
      own.id = RandomBytes(kShmIdBytes);
      ELASTICDL_ASSIGN_OR_RETURN(
          auto segment,
          ShmSegment::Create(ShapeOf(world), own.id, world.may_shrink));
      own.fd = segment->fd();
      made = std::make_unique<ShmWorld>(std::move(segment), 0, world.size());
    }
    return std::unique_ptr<Connector>(
        new ShmConnector(world, Encode(own), std::move(made)));
  }

  ~ShmConnector() override { Abort("a member gave the world up"); }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    MutexLock lock(mu_);
    if (aborted_.ok()) aborted_ = absl::AbortedError(reason);
    // Does not block: it stores words and wakes sleepers.
    if (world_ != nullptr) world_->Abort(absl::AbortedError(reason));
  }

 private:
  ShmConnector(const WorldSpec& world, const std::string& payload,
               std::unique_ptr<ShmWorld> made)
      : spec_(world),
        offer_(SealOffer(world, kKind, payload)),
        world_(std::move(made)) {}

  static ShmSegment::Shape ShapeOf(const WorldSpec& world) {
    return {world.generation, world.size(),
            ShmCommunicator::PartBytes(world.size())};
  }

  absl::Status Attach(const std::vector<ShmOffer>& offers);
  absl::StatusOr<std::shared_ptr<DeathWatch>> WatchOthers(
      const std::vector<ShmOffer>& offers) const;

  const WorldSpec spec_;
  const std::string offer_;
  Mutex mu_;
  absl::Status aborted_ ABSL_GUARDED_BY(mu_);
  // Set once, then used without the lock by Connect, which alone takes it away.
  std::unique_ptr<ShmWorld> world_ ABSL_GUARDED_BY(mu_);
};

absl::Status ShmConnector::Attach(const std::vector<ShmOffer>& offers) {
  std::unique_ptr<ShmSegment> segment;
  if (spec_.rank != 0) {
    const ShmOffer& maker = offers[0];
    ELASTICDL_ASSIGN_OR_RETURN(
        segment, ShmSegment::Attach(ShapeOf(spec_), maker.id, maker.process.pid,
                                    maker.fd));
  }
  MutexLock lock(mu_);
  if (segment != nullptr) {
    world_ = std::make_unique<ShmWorld>(std::move(segment), spec_.rank,
                                        spec_.size());
    if (!aborted_.ok()) world_->Abort(aborted_);
  }
  return aborted_;
}

absl::StatusOr<std::shared_ptr<DeathWatch>> ShmConnector::WatchOthers(
    const std::vector<ShmOffer>& offers) const {
  std::vector<WatchedProcess> others;
  for (int rank = 0; rank < spec_.size(); ++rank) {
    if (rank == spec_.rank) continue;
    others.push_back({rank, offers[rank].process, offers[rank].sign});
  }
  return DeathWatch::Start(std::move(others));
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  if (offers.size() != spec_.hosts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(offers.size(), " offers for ", spec_.size(), " members"));
  }
  std::vector<ShmOffer> decoded;
  for (int rank = 0; rank < spec_.size(); ++rank) {
    ELASTICDL_ASSIGN_OR_RETURN(ShmOffer offer,
                               Decode(spec_, rank, offers[rank]));
    decoded.push_back(std::move(offer));
  }
  ELASTICDL_RETURN_IF_ERROR(Attach(decoded));
  ShmWorld* world = nullptr;
  {
    MutexLock lock(mu_);
    world = world_.get();
  }
  if (world == nullptr) {
    return absl::FailedPreconditionError("Connect was called before");
  }
  ELASTICDL_ASSIGN_OR_RETURN(std::shared_ptr<DeathWatch> watch,
                             WatchOthers(decoded));
  std::vector<int> ranks(decoded.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  FollowDeaths(*watch, *world, ranks);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.connect"));
  world->Publish(0);
  ELASTICDL_RETURN_IF_ERROR(world->WaitAll(deadline));
  MutexLock lock(mu_);
  world_->segment().CloseFd();
  return std::make_unique<ShmCommunicator>(std::move(world_), std::move(watch),
                                           std::move(ranks));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginShm(const WorldSpec& world) {
  return ShmConnector::Begin(world);
}

}  // namespace elasticdl::collective
