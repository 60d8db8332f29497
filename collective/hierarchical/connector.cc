// A hierarchical world consists of a world per host and one of the leaders.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backends.h"
#include "core/blame.h"
#include "core/deadline.h"
#include "core/offer.h"
#include "elasticdl/common/status.h"
#include "hierarchical/communicator.h"
#include "hierarchical/host_groups.h"
#include "shm/communicator.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "hierarchical";

struct Offers {
  std::string local;
  // Of leaders only.
  std::string leaders;
};

absl::StatusOr<Offers> Decode(const WorldSpec& world, int rank,
                              const std::string& offer) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string payload,
                             OpenOffer(world, rank, kKind, offer));
  absl::string_view rest = payload;
  Offers offers;
  if (!TakeText(rest, offers.local) || !TakeText(rest, offers.leaders) ||
      !rest.empty()) {
    return Blame(rank, absl::InvalidArgumentError(absl::StrCat(
                           "offer of rank ", rank, " is damaged")));
  }
  return offers;
}

class HierarchicalConnector final : public Connector {
 public:
  HierarchicalConnector(const WorldSpec& world, HostGroups groups,
                        std::unique_ptr<Connector> local,
                        std::unique_ptr<Connector> leaders)
      : world_(world),
        groups_(std::move(groups)),
        local_(std::move(local)),
        leaders_(std::move(leaders)) {
    std::string payload;
    AppendText(local_->offer(), payload);
    AppendText(leaders_ == nullptr ? "" : leaders_->offer(), payload);
    offer_ = SealOffer(world_, kKind, payload);
  }

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    local_->Abort(reason);
    if (leaders_ != nullptr) leaders_->Abort(reason);
  }

 private:
  absl::StatusOr<HierarchicalCommunicator::Parts> ConnectParts(
      const std::vector<Offers>& offers, Deadline& deadline);

  const WorldSpec world_;
  const HostGroups groups_;
  const std::unique_ptr<Connector> local_;
  const std::unique_ptr<Connector> leaders_;
  std::string offer_;
};

absl::StatusOr<HierarchicalCommunicator::Parts>
HierarchicalConnector::ConnectParts(const std::vector<Offers>& offers,
                                    Deadline& deadline) {
  std::vector<std::string> local;
  for (const int rank : groups_.members[groups_.host_of[world_.rank]]) {
    local.push_back(offers[rank].local);
  }
  HierarchicalCommunicator::Parts parts;
  ELASTICDL_ASSIGN_OR_RETURN(parts.local,
                             local_->Connect(local, deadline.Left()));
  if (leaders_ != nullptr) {
    std::vector<std::string> leaders;
    for (const std::vector<int>& ranks : groups_.members) {
      leaders.push_back(offers[ranks.front()].leaders);
    }
    auto connected = leaders_->Connect(leaders, deadline.Left());
    if (!connected.ok()) {
      parts.local->Abort(std::string(connected.status().message()));
      return connected.status();
    }
    parts.leaders = std::move(*connected);
  }
  if (local.size() == 1) return parts;
  // Created by BeginShm.
  ShmWorld& shared = static_cast<ShmCommunicator&>(*parts.local).world();
  parts.wait_for_abort = [&shared] { shared.WaitForAbort(); };
  parts.stop_waiting = [&shared] { shared.StopWaiting(); };
  // Members are connected when their leader is.
  shared.Publish(0);
  ELASTICDL_RETURN_IF_ERROR(shared.WaitAll(deadline));
  return parts;
}

absl::StatusOr<std::unique_ptr<Communicator>> HierarchicalConnector::Connect(
    const std::vector<std::string>& offers, absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(CheckNumberOfOffers(world_, offers));
  std::vector<Offers> decoded(offers.size());
  for (int rank = 0; rank < world_.size(); ++rank) {
    // In a large world, those of other hosts; the parts miss what they need.
    if (offers[rank].empty()) continue;
    ELASTICDL_ASSIGN_OR_RETURN(decoded[rank],
                               Decode(world_, rank, offers[rank]));
  }
  absl::StatusOr<HierarchicalCommunicator::Parts> parts =
      ConnectParts(decoded, deadline);
  if (!parts.ok()) {
    // The leader, or the others on this host, must not wait for this member.
    Abort(std::string(parts.status().message()));
    return InAPart(parts.status());
  }
  return std::make_unique<HierarchicalCommunicator>(world_, groups_,
                                                    std::move(*parts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginHierarchical(
    const WorldSpec& world, const std::string& host) {
  HostGroups groups = GroupByHost(world);
  const WorldSpec local_world = LocalWorld(world, groups);
  std::unique_ptr<Connector> local;
  if (local_world.size() == 1) {
    ELASTICDL_ASSIGN_OR_RETURN(local, BeginSingle(local_world));
  } else {
    ELASTICDL_ASSIGN_OR_RETURN(local, BeginShm(local_world));
  }
  std::unique_ptr<Connector> leaders;
  if (groups.place_of[world.rank] == 0) {
    ELASTICDL_ASSIGN_OR_RETURN(leaders,
                               BeginTcp(LeaderWorld(world, groups), host));
  }
  return std::make_unique<HierarchicalConnector>(
      world, std::move(groups), std::move(local), std::move(leaders));
}

}  // namespace elasticdl::collective
