#include "elasticdl/ps/bucket_mover.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lane.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ps/client.h"
#include "wire.h"

namespace elasticdl::ps {
namespace {

// Of one request to another server.
constexpr absl::Duration kFetchTimeout = absl::Seconds(30);

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// A server that has a part of the model.
int AnyOwner(const v1::MoveBuckets& step, int but) {
  for (const v1::BucketMove& move : step.moves()) {
    if (move.from() != but) return move.from();
  }
  for (const int owner : step.map().owners()) {
    if (owner != but) return owner;
  }
  return -1;
}

}  // namespace

absl::StatusOr<MoveAction> NextMoveAction(int server,
                                          const v1::MoveBuckets& step,
                                          const Server::Moving& moving) {
  using Kind = MoveAction::Kind;
  for (const auto& [bucket, map_version] : moving.leaving) {
    if (map_version < step.forget_before()) {
      return MoveAction{Kind::kForget, bucket, map_version, 0};
    }
  }
  if (!moving.defined) {
    const int from = AnyOwner(step, server);
    if (from < 0) return absl::NotFoundError("no other server has the model");
    return MoveAction{Kind::kDefine, 0, 0, from};
  }
  if (moving.map_version > step.map().version()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has bucket map ", moving.map_version, ", the master only ",
        step.map().version(), ": the end of the master's journal is lost"));
  }
  if (moving.map_version < step.map().version()) {
    return MoveAction{Kind::kMap, 0, 0, 0};
  }
  if (moving.awaited.empty()) return MoveAction{};
  const int bucket = *moving.awaited.begin();
  for (const v1::BucketMove& move : step.moves()) {
    if (move.bucket() == bucket) {
      return MoveAction{Kind::kFetch, bucket, 0, move.from()};
    }
  }
  return absl::InternalError(
      absl::StrCat("the location of bucket ", bucket, " is unknown"));
}

// The other servers.
class BucketMover::Source {
 public:
  Source(const std::string& secret, ServerBook& book) {
    options_.secret = secret;
    options_.find = [&book](int server, absl::Duration timeout) {
      return book.Find(server, timeout);
    };
  }

  // The answer's payload is in `payload` until the next call.
  absl::Status Ask(int server, const v1::PsRequest& request, v1::PsReply& reply,
                   absl::string_view& payload) {
    Client::Lane& lane = LaneTo(server);
    Client::Call call;
    call.request = request;
    ELASTICDL_RETURN_IF_ERROR(lane.Send(call, kFetchTimeout));
    ELASTICDL_RETURN_IF_ERROR(lane.Receive(call, kFetchTimeout));
    reply = std::move(call.reply);
    payload = lane.answer.view();
    return absl::OkStatus();
  }
  // What is asked of this server fails. Any thread.
  void Interrupt(int server) {
    MutexLock lock(mu_);
    const auto lane = lanes_.find(server);
    if (lane != lanes_.end()) lane->second->Interrupt();
  }
  // Ask fails with CANCELLED. Any thread.
  void Cancel() {
    MutexLock lock(mu_);
    cancelled_ = true;
    for (const auto& [server, lane] : lanes_) lane->Cancel();
  }

 private:
  Client::Lane& LaneTo(int server) {
    MutexLock lock(mu_);
    std::unique_ptr<Client::Lane>& lane = lanes_[server];
    if (lane == nullptr) {
      lane = std::make_unique<Client::Lane>(options_, server);
      if (cancelled_) lane->Cancel();
    }
    return *lane;
  }

  Client::Options options_;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int, std::unique_ptr<Client::Lane>> lanes_ ABSL_GUARDED_BY(mu_);
};

BucketMover::BucketMover(Options options, Server& server,
                         const v1::Servers& servers)
    : options_(std::move(options)),
      server_(server),
      book_(servers),
      source_(std::make_unique<Source>(options_.secret, book_)),
      thread_("buckets", [this] { Run(); }) {}

BucketMover::~BucketMover() {
  Stop();
  thread_.Join();
}

void BucketMover::SetServers(const v1::Servers& servers) {
  for (const int server : book_.Set(servers)) source_->Interrupt(server);
}

void BucketMover::Begin(v1::MoveBuckets step) {
  {
    MutexLock lock(mu_);
    step_ = std::move(step);
    dropped_ = false;
  }
  changed_.NotifyAll();
}

void BucketMover::Drop() {
  {
    MutexLock lock(mu_);
    step_.reset();
    dropped_ = true;
  }
  changed_.NotifyAll();
}

void BucketMover::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  book_.Cancel();
  source_->Cancel();
  changed_.NotifyAll();
}

bool BucketMover::WaitBeforeNextTry(absl::Duration time) {
  MutexLock lock(mu_);
  if (!stopped_ && !dropped_ && !step_.has_value()) {
    changed_.WaitFor(mu_, time);
  }
  return stopped_ || dropped_ || step_.has_value();
}

void BucketMover::Run() {
  while (true) {
    v1::MoveBuckets step;
    {
      MutexLock lock(mu_);
      while (!stopped_ && !step_.has_value()) changed_.Wait(mu_);
      if (stopped_) return;
      step = *std::exchange(step_, std::nullopt);
    }
    Backoff::Options pauses;
    pauses.initial = absl::Milliseconds(5);
    pauses.max = absl::Milliseconds(500);
    Backoff backoff(pauses, static_cast<uint64_t>(options_.server));
    absl::Status done = Carry(step);
    bool told = false;
    while (IsAway(done)) {
      if (!std::exchange(told, true)) {
        LogWarning("buckets of map ", step.map().version(),
                   " have to wait: ", done.message());
      }
      if (WaitBeforeNextTry(backoff.Next())) break;
      done = Carry(step);
    }
    if (IsAway(done) || absl::IsCancelled(done)) continue;
    {
      // What this copy says as a former primary would be wrong.
      MutexLock lock(mu_);
      if (dropped_) continue;
    }
    v1::ServerMoved moved;
    moved.set_part(options_.server);
    moved.set_map_version(step.map().version());
    moved.set_forget_before(step.forget_before());
    if (!done.ok()) {
      LogError("moving buckets: ", done.message());
      moved.set_error(std::string(done.message()));
    }
    options_.tell(std::move(moved));
  }
}

absl::Status BucketMover::Carry(const v1::MoveBuckets& step) {
  while (true) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const MoveAction action,
        NextMoveAction(options_.server, step, server_.moving()));
    if (action.kind == MoveAction::Kind::kDone) {
      ELASTICDL_RETURN_IF_ERROR(server_.Settle());
      return Failpoint("ps.moved");
    }
    const absl::Status acted = Act(step, action);
    // It may be said again after a restart of either side.
    if (!absl::IsAlreadyExists(acted)) ELASTICDL_RETURN_IF_ERROR(acted);
  }
}

absl::Status BucketMover::Act(const v1::MoveBuckets& step,
                              const MoveAction& action) {
  v1::PsEntry entry;
  v1::PsFetch fetch;
  switch (action.kind) {
    case MoveAction::Kind::kForget:
      entry.mutable_forget()->set_bucket(action.bucket);
      entry.mutable_forget()->set_map_version(action.map_version);
      return server_.Apply(entry);
    case MoveAction::Kind::kDefine:
      return LearnDefinition(action.from);
    case MoveAction::Kind::kMap:
      ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.move"));
      *entry.mutable_map() = step.map();
      return server_.Apply(entry);
    case MoveAction::Kind::kFetch:
      ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.import"));
      fetch.set_bucket(action.bucket);
      fetch.set_map_version(step.map().version());
      return FetchBucket(fetch, action.from);
    case MoveAction::Kind::kDone:
      break;
  }
  return absl::OkStatus();
}

absl::Status BucketMover::LearnDefinition(int from) {
  v1::PsRequest request;
  request.mutable_status()->set_definition(true);
  v1::PsReply reply;
  absl::string_view payload;
  ELASTICDL_RETURN_IF_ERROR(source_->Ask(from, request, reply, payload));
  if (!reply.entry().has_definition()) {
    return absl::NotFoundError(
        absl::StrCat("parameter server ", from, " has no model"));
  }
  return server_.Apply(reply.entry());
}

absl::Status BucketMover::FetchBucket(const v1::PsFetch& fetch, int from) {
  v1::PsRequest request;
  *request.mutable_fetch() = fetch;
  v1::PsReply reply;
  absl::string_view payload;
  ELASTICDL_RETURN_IF_ERROR(source_->Ask(from, request, reply, payload));
  if (reply.entry().import().bucket() != fetch.bucket()) {
    return absl::InternalError(absl::StrCat("parameter server ", from,
                                            " answered with another bucket"));
  }
  return server_.Apply(reply.entry(), payload);
}

}  // namespace elasticdl::ps
