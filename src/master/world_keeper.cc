#include "world_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/collective/topology.h"
#include "elasticdl/common/text.h"

namespace elasticdl::master {

using rendezvous::LoadStage;
using rendezvous::MembershipDecision;
using rendezvous::WorldMember;

namespace {

// More than what a member takes before it reports that NCCL cannot connect
// (WorldLink::Options::nccl_connect_timeout).
constexpr absl::Duration kNcclConnectTimeout = absl::Seconds(90);

std::vector<int64_t> Ids(const std::vector<WorldMember>& members) {
  std::vector<int64_t> ids;
  ids.reserve(members.size());
  for (const WorldMember& member : members) ids.push_back(member.worker_id);
  return ids;
}

LoadStage StageOf(const v1::Loading& loading) {
  switch (loading.stage()) {
    case v1::Loading::LOADED:
      return LoadStage::kLoaded;
    case v1::Loading::MOVING:
      return LoadStage::kMoving;
    default:
      return LoadStage::kLoading;
  }
}

}  // namespace

bool WorldKeeper::IsMember(int64_t worker_id) const {
  return membership_.IsActive(worker_id);
}

void WorldKeeper::StartAfter(int64_t generation) {
  last_generation_ = generation;
  membership_ = rendezvous::Membership(options_, generation + 1);
}

// What members say ------------------------------------------------------------

void WorldKeeper::OnIdle(int64_t worker_id, int64_t idle_generation) {
  // The word of a world that is over says nothing about this one.
  if (IsMember(worker_id) && idle_generation == generation()) {
    idle_generation_ = idle_generation;
  }
}

void WorldKeeper::OnLoading(absl::Time now, int64_t worker_id,
                            const v1::Loading& loading) {
  membership_.Loading(now, worker_id, loading.generation(), StageOf(loading));
  // Those who wait say nothing of interest.
  if (loading.stage() != v1::Loading::LOADED &&
      loading.generation() >= loading_.generation() &&
      loading.total_bytes() >= loading_.total_bytes()) {
    loading_ = loading;
  }
}

NcclVerdict WorldKeeper::OnNcclFailure(int64_t generation) {
  // Fewer than those that cost a member its place.
  const int most = std::max(1, options_.max_broken - 1);
  // NCCL connects lazily: a world may become level and fail in its first sum.
  const bool works = active_nccl_generation_ != 0 &&
                     active_nccl_generation_ == this->generation() &&
                     active_nccl_generation_ != generation;
  // What has worked may work again, with other workers.
  const bool wanted = collective_ == "nccl";
  if (without_nccl_ || works || (wanted && nccl_worked_) ||
      generation <= nccl_failed_generation_) {
    return NcclVerdict::kGoOn;
  }
  nccl_failed_generation_ = generation;
  without_nccl_ = ++nccl_failures_ >= most;
  if (!without_nccl_) return NcclVerdict::kGoOn;
  return wanted ? NcclVerdict::kHopeless : NcclVerdict::kWithout;
}

bool WorldKeeper::OnStep(int64_t generation) {
  membership_.Stepped(generation);
  if (generation == active_nccl_generation_) {
    nccl_failures_ = 0;
    nccl_worked_ = true;
  }
  return std::exchange(stepped_generation_, generation) != generation;
}

// What they are told ----------------------------------------------------------

void WorldKeeper::SendTo(const std::vector<int64_t>& workers,
                         v1::MasterMessage message) {
  port_.Send(registry_.Connections(workers), std::move(message));
}

bool WorldKeeper::Announce(const MembershipDecision& decision) {
  v1::MasterMessage message;
  switch (decision.kind) {
    case MembershipDecision::Kind::kOffers:
      SendOffers(decision);
      return true;
    case MembershipDecision::Kind::kSwitch:
      message.mutable_switch_()->set_generation(decision.generation);
      break;
    case MembershipDecision::Kind::kDissolve:
      message.mutable_dissolve()->set_generation(decision.generation);
      break;
    default:
      return false;
  }
  SendTo(decision.to, std::move(message));
  return true;
}

void WorldKeeper::SendOffers(const MembershipDecision& decision) {
  std::vector<std::string> hosts;
  hosts.reserve(decision.members.size());
  for (const WorldMember& member : decision.members) {
    hosts.push_back(member.host);
  }
  const std::vector<std::vector<int>> needed =
      collective::NeededOffers(hosts, offered_);
  v1::MasterMessage message;
  if (needed.empty()) {
    message.mutable_offers()->set_generation(decision.generation);
    for (const std::string& offer : decision.offers) {
      message.mutable_offers()->add_offers(offer);
    }
    return SendTo(decision.to, std::move(message));
  }
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    v1::Offers& offers = *message.mutable_offers();
    offers.set_generation(decision.generation);
    for (const int peer : needed[rank]) {
      offers.add_ranks(static_cast<uint32_t>(peer));
      offers.add_offers(decision.offers[static_cast<size_t>(peer)]);
    }
    SendTo({decision.members[rank].worker_id}, std::move(message));
    message.Clear();
  }
}

v1::Prepare WorldKeeper::BeginPrepare(const MembershipDecision& decision) {
  loading_.Clear();
  last_generation_ = decision.generation;
  v1::Prepare prepare;
  prepare.set_generation(decision.generation);
  prepare.set_urgent(decision.urgent);
  prepare.set_cold(decision.cold);
  prepare.set_last(decision.last);
  prepare.set_shrinks(decision.shrinks);
  for (const WorldMember& member : decision.members) {
    v1::Member& added = *prepare.add_members();
    added.set_worker_id(member.worker_id);
    added.set_host(member.host);
    const Worker* const worker = registry_.FindById(member.worker_id);
    if (worker != nullptr && worker->nccl && !without_nccl_) {
      prepare.set_nccl(true);
    }
  }
  if (prepare.nccl() && prepare.members_size() > 1) {
    nccl_generation_ = decision.generation;
  }
  membership_.set_connect_timeout(prepare.nccl() ? kNcclConnectTimeout
                                                 : options_.connect_timeout);
  const bool may_use_nccl = collective_ == "auto" || collective_ == "nccl";
  offered_ = may_use_nccl && prepare.nccl() ? "nccl" : collective_;
  return prepare;
}

WorldChange WorldKeeper::Activate(const MembershipDecision& decision,
                                  absl::Duration pause, int64_t step,
                                  int64_t lineage) {
  WorldChange world;
  world.generation = decision.generation;
  world.members = Ids(decision.members);
  world.cause = decision.reason;
  // The membership knows since when a world was broken; what a switch costs
  // only its members know.
  world.pause = std::max(decision.pause, pause);
  world.step = step;
  size_ = world.members.size();
  active_nccl_generation_ =
      world.generation == nccl_generation_ ? nccl_generation_ : 0;
  idle_generation_ = 0;
  last_world_.set_generation(world.generation);
  last_world_.clear_members();
  for (const int64_t id : world.members) {
    if (membership_.IsLevel(id)) last_world_.add_members(id);
  }
  last_world_.set_lineage(lineage);
  return world;
}

void WorldKeeper::Wake() {
  if (!at_rest()) return;
  v1::MasterMessage message;
  message.mutable_wake()->set_generation(std::exchange(idle_generation_, 0));
  SendTo(Ids(membership_.active_members()), std::move(message));
}

void WorldKeeper::SendTrainingDone() {
  if (!at_rest()) return;
  for (auto& [connection, worker] : registry_.workers()) {
    // Who is not level yet hears it from the members.
    if (!IsMember(worker.id) || worker.training_done_in == generation()) {
      continue;
    }
    worker.training_done_in = generation();
    v1::MasterMessage message;
    message.mutable_training_done()->set_generation(generation());
    port_.Send({connection}, std::move(message));
  }
}

std::string WorldKeeper::Activity(size_t ready, size_t attached) const {
  if (attached == 0) return "starting workers";
  if (ready == 0) {
    return absl::StrCat("compiling or loading the model in ",
                        Count(static_cast<int64_t>(attached), "worker"));
  }
  if (!membership_.IsForming()) {
    return absl::StrCat("waiting for more workers, ", ready, " of at least ",
                        options_.min_workers, " are ready");
  }
  if (loading_.generation() == 0) {
    return absl::StrCat(
        "connecting ",
        Count(static_cast<int64_t>(membership_.num_workers()), "worker"));
  }
  if (loading_.total_bytes() == 0) return "loading the model's state";
  constexpr double kMegabyte = 1e6;
  return absl::StrFormat(
      "%s the model's state, %.1f of %.1f MB",
      loading_.stage() == v1::Loading::MOVING ? "passing on" : "loading",
      static_cast<double>(loading_.bytes()) / kMegabyte,
      static_cast<double>(loading_.total_bytes()) / kMegabyte);
}

}  // namespace elasticdl::master
