#include "elasticdl/rendezvous/world_link.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"

namespace elasticdl::rendezvous {

v1::WorkerMessage MakeWorldFailed(int64_t generation,
                                  const absl::Status& status) {
  v1::WorkerMessage message;
  v1::WorldFailed& failed = *message.mutable_world_failed();
  failed.set_generation(generation);
  failed.set_reason(std::string(status.message()));
  const int accused = collective::BlamedRank(status);
  if (accused >= 0) failed.set_accused_rank(accused);
  failed.set_nccl(collective::IsNcclFailure(status));
  return message;
}

namespace {

// Empty where the master has sent none.
absl::StatusOr<std::vector<std::string>> ByRank(const v1::Offers& offers,
                                                size_t size) {
  if (offers.ranks().empty()) {
    return std::vector<std::string>(offers.offers().begin(),
                                    offers.offers().end());
  }
  std::vector<std::string> by_rank(size);
  if (offers.ranks_size() != offers.offers_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        offers.offers_size(), " offers of ", offers.ranks_size(), " ranks"));
  }
  for (int i = 0; i < offers.ranks_size(); ++i) {
    if (offers.ranks(i) >= size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an offer of rank ", offers.ranks(i), " in a world of ", size));
    }
    by_rank[offers.ranks(i)] = offers.offers(i);
  }
  return by_rank;
}

std::vector<int64_t> MemberIds(const v1::Prepare& prepare) {
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(prepare.members_size()));
  for (const v1::Member& member : prepare.members()) {
    ids.push_back(member.worker_id());
  }
  return ids;
}

}  // namespace

WorldLink::WorldLink(Options options,
                     std::function<void(v1::WorkerMessage)> send,
                     std::function<void(int64_t generation)> connected)
    : options_(std::move(options)),
      send_(std::move(send)),
      connected_(std::move(connected)),
      jobs_(std::numeric_limits<size_t>::max()) {
  if (options_.run) return;
  thread_.emplace("world", [this] {
    BeSwift();
    while (auto job = jobs_.Pop()) (*job)();
  });
}

WorldLink::~WorldLink() {
  AbortAll("the worker ends");
  jobs_.Close();
  if (thread_.has_value()) thread_->Join();
}

void WorldLink::Run(std::function<void()> work) {
  if (options_.run) {
    options_.run(std::move(work));
  } else {
    jobs_.Push(std::move(work));
  }
}

bool WorldLink::Hear(const v1::MasterMessage& message) {
  if (message.has_prepare()) OnPrepare(message.prepare());
  if (message.has_dissolve()) OnDissolve(message.dissolve());
  if (message.has_stop()) AbortAll(message.stop().reason());
  if (!message.has_offers()) return false;
  Run([this, offers = message.offers()] { Connect(offers); });
  return true;
}

void WorldLink::OnPrepare(const v1::Prepare& prepare) {
  std::shared_ptr<collective::Connector> overtaken;
  std::shared_ptr<collective::Communicator> broken;
  Made stale;
  {
    MutexLock lock(mu_);
    if (prepare.generation() <= newest_) return;
    newest_ = prepare.generation();
    overtaken = connector_;
    if (prepare.urgent()) {
      newest_urgent_ = newest_;
      broken = in_use_.communicator;
    }
    shrinking_.reset();
    if (prepare.shrinks() != 0) {
      shrinking_ = {prepare.generation(), prepare.shrinks(),
                    MemberIds(prepare)};
      connector_.reset();
      stale = std::exchange(made_, {});
    }
  }
  const std::string reason =
      absl::StrCat("world ", prepare.generation(), " is coming");
  if (overtaken != nullptr) overtaken->Abort(reason);
  if (broken != nullptr) broken->Abort(reason);
  if (prepare.shrinks() == 0) return Run([this, prepare] { Begin(prepare); });
  // Closing them may take a moment, for which nobody should wait.
  if (stale.communicator != nullptr) Run([stale = std::move(stale)] {});
  if (overtaken != nullptr) Run([overtaken = std::move(overtaken)] {});
}

void WorldLink::OnDissolve(const v1::Dissolve& dissolve) {
  std::shared_ptr<collective::Communicator> broken;
  Made dropped;
  {
    MutexLock lock(mu_);
    dissolved_ = std::max(dissolved_, dissolve.generation());
    if (in_use_.generation <= dissolve.generation()) {
      broken = in_use_.communicator;
    }
    // Nothing follows from it any more.
    if (dropped_.generation <= dissolve.generation()) {
      dropped = std::exchange(dropped_, {});
    }
  }
  if (broken != nullptr) broken->Abort("the world is dissolved");
  if (dropped.communicator != nullptr) Run([dropped = std::move(dropped)] {});
}

void WorldLink::Break(const std::string& reason) {
  std::shared_ptr<collective::Communicator> broken;
  {
    MutexLock lock(mu_);
    // Whoever enters it after this would wait for others that may never have
    // heard of it, and nobody would abort that.
    shrinking_.reset();
    broken = in_use_.communicator;
  }
  if (broken != nullptr) broken->Abort(reason);
}

void WorldLink::AbortAll(const std::string& reason) {
  std::shared_ptr<collective::Connector> connector;
  std::shared_ptr<collective::Communicator> made;
  std::shared_ptr<collective::Communicator> in_use;
  {
    MutexLock lock(mu_);
    if (aborted_.empty()) aborted_ = reason;
    newest_ = std::numeric_limits<int64_t>::max();
    connector = connector_;
    made = made_.communicator;
    in_use = in_use_.communicator;
  }
  if (connector != nullptr) connector->Abort(reason);
  if (made != nullptr) made->Abort(reason);
  if (in_use != nullptr) in_use->Abort(reason);
}

void WorldLink::Begin(const v1::Prepare& prepare) {
  const int64_t generation = prepare.generation();
  {
    Made stale;
    Made dropped;
    MutexLock lock(mu_);
    if (generation != newest_) return;
    connector_.reset();
    stale = std::exchange(made_, {});
    // While a world is prepared in the background, the one that was just
    // dropped may still shrink.
    if (prepare.urgent()) dropped = std::exchange(dropped_, {});
  }
  collective::WorldSpec spec;
  spec.generation = generation;
  spec.rank = -1;
  spec.secret = options_.secret;
  for (const v1::Member& member : prepare.members()) {
    if (member.worker_id() == options_.worker_id) {
      spec.rank = static_cast<int>(spec.hosts.size());
    }
    spec.hosts.push_back(member.host());
  }
  if (spec.rank < 0) return;
  const absl::Status status = Failpoint("world.offer");
  if (!status.ok()) return Fail(generation, status);
  collective::BackendOptions backend = options_.backend;
  // Nobody has it, and worlds without it need fewer offers.
  if (backend.backend == "nccl" && !prepare.nccl()) backend.backend = "auto";
  auto connector = options_.begin ? options_.begin(spec)
                                  : collective::BeginConnect(spec, backend);
  if (!connector.ok()) return Fail(generation, connector.status());
  v1::WorkerMessage message;
  message.mutable_offer()->set_generation(generation);
  message.mutable_offer()->set_offer((*connector)->offer());
  {
    MutexLock lock(mu_);
    if (generation != newest_) return;
    connector_ = *std::move(connector);
    connector_generation_ = generation;
    connector_members_ = MemberIds(prepare);
    connector_nccl_ = prepare.nccl();
  }
  send_(std::move(message));
}

void WorldLink::Connect(const v1::Offers& offers) {
  const int64_t generation = offers.generation();
  std::shared_ptr<collective::Connector> connector;
  std::vector<int64_t> members;
  absl::Duration timeout;
  {
    MutexLock lock(mu_);
    if (generation != newest_ || generation != connector_generation_) return;
    connector = connector_;
    members = connector_members_;
    timeout = connector_nccl_ ? options_.nccl_connect_timeout
                              : options_.connect_timeout;
  }
  if (connector == nullptr) return;
  const absl::Status status = Failpoint("world.connect");
  if (!status.ok()) return Fail(generation, status);
  const auto by_rank = ByRank(offers, members.size());
  if (!by_rank.ok()) return Fail(generation, by_rank.status());
  auto made = connector->Connect(*by_rank, timeout);
  if (!made.ok()) return Fail(generation, made.status());
  {
    MutexLock lock(mu_);
    if (connector_ == connector) connector_.reset();
    if (generation != newest_) return;
    made_ = {*std::move(made), generation, std::move(members)};
  }
  v1::WorkerMessage message;
  message.mutable_connected()->set_generation(generation);
  send_(std::move(message));
  connected_(generation);
}

void WorldLink::Fail(int64_t generation, const absl::Status& status) {
  {
    MutexLock lock(mu_);
    // A newer world has replaced it: that is why it failed, and nobody waits
    // for it.
    if (generation != newest_) return;
  }
  LogWarning("world ", generation, " cannot be made: ", status.message());
  send_(MakeWorldFailed(generation, status));
}

absl::Status WorldLink::Shrink() {
  const Shrinking wanted = *std::exchange(shrinking_, std::nullopt);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("world.shrink"));
  const Made& from = in_use_.generation == wanted.from ? in_use_ : dropped_;
  if (from.communicator == nullptr || from.generation != wanted.from) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker is not in world ", wanted.from));
  }
  std::vector<int> ranks;
  for (const int64_t id : wanted.members) {
    const auto found = std::find(from.members.begin(), from.members.end(), id);
    if (found == from.members.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", id, " is not in world ", wanted.from));
    }
    ranks.push_back(static_cast<int>(found - from.members.begin()));
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      made_.communicator, from.communicator->Shrink(ranks, wanted.generation));
  made_.generation = wanted.generation;
  made_.members = wanted.members;
  return absl::OkStatus();
}

std::shared_ptr<collective::Communicator> WorldLink::Use(int64_t generation) {
  absl::Status shrunk;
  {
    std::shared_ptr<collective::Communicator> older;
    Made dropped;
    MutexLock lock(mu_);
    if (generation < newest_urgent_ || generation <= dissolved_ ||
        !aborted_.empty()) {
      return nullptr;
    }
    if (shrinking_.has_value() && shrinking_->generation == generation) {
      shrunk = Shrink();
    }
    if (made_.communicator != nullptr && made_.generation == generation) {
      dropped = std::exchange(dropped_, {});
      older = std::move(former_);
      former_ = std::move(in_use_.communicator);
      if (former_ == nullptr) former_ = std::move(dropped.communicator);
      in_use_ = std::exchange(made_, {});
      return in_use_.communicator;
    }
  }
  if (!shrunk.ok()) Fail(generation, shrunk);
  return nullptr;
}

bool WorldLink::IsUsable(int64_t generation) const {
  MutexLock lock(mu_);
  return in_use_.communicator != nullptr && in_use_.generation == generation &&
         generation >= newest_urgent_ && generation > dissolved_ &&
         aborted_.empty();
}

bool WorldLink::IsOvertaken(int64_t generation) const {
  MutexLock lock(mu_);
  return generation < newest_urgent_;
}

void WorldLink::ForgetFormer() {
  std::shared_ptr<collective::Communicator> former;
  {
    MutexLock lock(mu_);
    former = std::exchange(former_, nullptr);
  }
  // Closing it takes a moment, and the next step waits for this thread.
  if (former != nullptr) Run([former] {});
}

void WorldLink::Drop(const std::string& reason) {
  Made dropped;
  {
    Made older;
    MutexLock lock(mu_);
    dropped = std::exchange(in_use_, {});
    if (dropped.communicator != nullptr && dropped.communicator->can_shrink()) {
      older = std::exchange(dropped_, dropped);
    }
  }
  if (dropped.communicator != nullptr) dropped.communicator->Abort(reason);
}

}  // namespace elasticdl::rendezvous
