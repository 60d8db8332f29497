#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "server_impl.h"

namespace elasticdl::ps {
namespace {

// Of one message once it has begun; a large one over a slow network.
constexpr absl::Duration kMessageTimeout = absl::Minutes(2);
// For a backup; below a client's patience for one answer.
constexpr absl::Duration kMostWait = absl::Seconds(45);
// How long a request waits for a map or a bucket that is on its way here before
// it is refused.
constexpr absl::Duration kMoveWait = absl::Seconds(5);

}  // namespace

uint64_t ServerImpl::RandomNumber() {
  uint64_t number = 0;
  std::memcpy(&number, RandomBytes(sizeof(number)).data(), sizeof(number));
  return number;
}

absl::Status ServerImpl::OpenLog() {
  WriterMutexLock lock(state_mu_);
  if (!options_.audit.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        audit_,
        PushAudit::Open({options_.audit, options_.server, options_.run}));
  }
  if (!options_.log_dir.empty()) {
    PushLog::Options log;
    log.dir = options_.log_dir;
    log.snapshot_bytes = options_.snapshot_bytes;
    if (audit_ != nullptr) {
      // What was logged but not audited when the last process ended.
      log.replayed = [audit = audit_.get()](int64_t number,
                                            const v1::PsEntry& entry,
                                            const ServerState& state) {
        return audit->Write(number, entry, state.version(), state.effect());
      };
    }
    auto opened = PushLog::Open(log, StateOptions(options_), state_);
    if (options_.replicated && absl::IsDataLoss(opened.status())) {
      LogWarning("starting without its log: ", opened.status().message());
      ELASTICDL_RETURN_IF_ERROR(PushLog::PutAside(options_.log_dir));
      state_ = ServerState(StateOptions(options_));
      opened = PushLog::Open(log, StateOptions(options_), state_);
    }
    ELASTICDL_RETURN_IF_ERROR(opened.status());
    log_ = *std::move(opened);
    aside_ = PushLog::HasAside(options_.log_dir);
    if (log_->position() > 0) {
      LogInfo("server ", options_.server, " continues from its log: version ",
              state_.version(), ", ", log_->position(), " entries");
    }
  }
  // One of two copies begins when it hears what it is.
  if (audit_ != nullptr && !options_.replicated &&
      (log_ == nullptr || log_->position() == 0)) {
    return audit_->Begin(/*term=*/0, /*position=*/0);
  }
  return absl::OkStatus();
}

absl::Status ServerImpl::SetUp() {
  ELASTICDL_RETURN_IF_ERROR(OpenLog());
  if (options_.replicated) {
    Replicator::Options replicator;
    replicator.part = options_.server;
    replicator.secret = options_.secret;
    replicator.open_log = [this] {
      // While this is held, no snapshot is finished.
      ReaderMutexLock lock(state_mu_);
      return LogReader::Open(options_.log_dir);
    };
    replicator.tell = [this](const v1::PsPartState& state) {
      options_.tell(state);
      if (state.has_current()) RemoveAside();
    };
    replicator_ = std::make_unique<Replicator>(std::move(replicator));
  }
  ELASTICDL_ASSIGN_OR_RETURN(listener_, net::Listener::Open(options_.address));
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!stop_event_.valid()) return ErrnoToStatus(errno, "eventfd");
  snapshots_ = Thread("snapshots", [this] { WriteSnapshots(); });
  acceptor_ = Thread("acceptor", [this] { AcceptAll(); });
  return absl::OkStatus();
}

ServerImpl::~ServerImpl() {
  Stop();
  acceptor_.Join();
  snapshots_.Join();
  std::map<int64_t, std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(mu_);
    connections.swap(connections_);
  }
  for (auto& [id, connection] : connections) connection->thread.Join();
}

void ServerImpl::End(absl::Status why) {
  {
    MutexLock lock(mu_);
    if (ended_) return;
    ended_ = true;
    why_ = std::move(why);
    for (auto& [id, connection] : connections_) connection->socket.ShutDown();
  }
  listener_.ShutDown();
  budget_.Stop();
  if (replicator_ != nullptr) replicator_->Stop();
  const uint64_t one = 1;
  // Only a full counter could make it fail.
  [[maybe_unused]] const ssize_t n =
      write(stop_event_.get(), &one, sizeof(one));
  changed_.NotifyAll();
}

absl::Status ServerImpl::Wait() {
  MutexLock lock(mu_);
  while (!ended_) changed_.Wait(mu_);
  return why_;
}

// ---- requests ----

absl::Status ServerImpl::ServeOne(net::Socket& socket, Follower* follower,
                                  Buffer& payload, Buffer& answer) {
  ELASTICDL_RETURN_IF_ERROR(socket.WaitReadable());
  v1::PsRequest request;
  ELASTICDL_ASSIGN_OR_RETURN(const uint64_t payload_bytes,
                             ReadHeader(socket, request, kMessageTimeout));
  // Until the answer is sent.
  ELASTICDL_ASSIGN_OR_RETURN(const ByteBudget::Share room,
                             MakeRoom(request, payload_bytes));
  ELASTICDL_RETURN_IF_ERROR(
      ReadPayload(socket, payload_bytes, payload, kMessageTimeout));
  v1::PsReply reply;
  reply.set_number(request.number());
  reply.set_incarnation(incarnation_);
  answer.Resize(0);
  switch (request.request_case()) {
    case v1::PsRequest::kEntry:
      HandleEntry(request.entry(), payload.view(), reply);
      break;
    case v1::PsRequest::kPull: {
      pulls_.fetch_add(1, std::memory_order_relaxed);
      // What another process has told means nothing here.
      if (request.pull().incarnation() != incarnation_) {
        request.mutable_pull()->set_dense_version(-1);
      }
      HandleRead(
          [&](const ServerState& state) {
            return state.Pull(request.pull(), payload.view(), reply, answer);
          },
          /*durable=*/false, reply, answer);
      break;
    }
    case v1::PsRequest::kRead:
      HandleRead(
          [&](const ServerState& state) {
            return state.Read(request.read(), reply, answer);
          },
          /*durable=*/false, reply, answer);
      ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.read"));
      break;
    case v1::PsRequest::kFetch:
      HandleRead(
          [&](const ServerState& state) {
            return state.Fetch(request.fetch(), reply, answer);
          },
          /*durable=*/true, reply, answer);
      ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.fetch"));
      break;
    case v1::PsRequest::kStatus:
      HandleStatus(request.status(), reply);
      break;
    case v1::PsRequest::kFollow:
    case v1::PsRequest::kSnapshotPiece:
    case v1::PsRequest::kFrames:
      if (follower != nullptr) {
        const bool more = request.has_frames() && socket.IsReadable();
        if (!follower->Handle(request, payload.view(), more, reply)) {
          return absl::OkStatus();
        }
        break;
      }
      [[fallthrough]];
    case v1::PsRequest::REQUEST_NOT_SET:
      reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
      reply.set_message("a request of no known kind");
      break;
  }
  reply.set_elsewhere(replicator_ != nullptr &&
                      reply.code() ==
                          static_cast<int>(absl::StatusCode::kUnavailable));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.reply"));
  return WriteMessage(socket, reply, {{answer.data(), answer.size()}},
                      kMessageTimeout);
}

void ServerImpl::HandleEntry(const v1::PsEntry& entry,
                             absl::string_view payload, v1::PsReply& reply) {
  absl::StatusOr<Place> place = Place();
  bool snapshot = false;
  const std::string header = entry.SerializeAsString();
  absl::Status done = AwaitMove([&] {
    WriterMutexLock lock(state_mu_);
    absl::Status accepted = Accept(entry, header, payload);
    if (accepted.ok()) place = PlaceOfLast();
    if (absl::IsAlreadyExists(accepted)) {
      // It may not be at the backup yet.
      place = CheckPlace();
      accepted = absl::OkStatus();
      if (entry.has_push()) {
        repeated_.fetch_add(1, std::memory_order_relaxed);
        reply.set_repeated_push(true);
      }
    }
    // Whoever defines the model may know an old map only.
    if (absl::IsFailedPrecondition(accepted) || entry.has_definition()) {
      FillMap(reply);
    }
    reply.set_version(state_.version());
    snapshot = SnapshotDue();
    return accepted;
  });
  if (done.ok()) {
    done =
        place.ok() ? Await(*place, kMostWait, header, payload) : place.status();
  }
  reply.set_code(static_cast<int>(done.code()));
  reply.set_message(std::string(done.message()));
  if (snapshot) WantSnapshot();
  if (entry.has_push()) SlowDown();
}

template <typename Ask>
void ServerImpl::HandleRead(const Ask& ask, bool durable, v1::PsReply& reply,
                            Buffer& answer) {
  absl::StatusOr<Place> place = Place();
  absl::Status read = AwaitMove([&]() -> absl::Status {
    ReaderMutexLock lock(state_mu_);
    ELASTICDL_RETURN_IF_ERROR(CheckAnswers());
    absl::Status asked = ask(state_);
    if (absl::IsFailedPrecondition(asked)) FillMap(reply);
    if (durable && asked.ok()) place = CheckPlace();
    return asked;
  });
  if (durable && read.ok()) {
    read = place.ok() ? Await(*place, kMostWait) : place.status();
  }
  reply.set_code(static_cast<int>(read.code()));
  reply.set_message(std::string(read.message()));
  if (!read.ok()) answer.Resize(0);
}

template <typename Attempt>
absl::Status ServerImpl::AwaitMove(const Attempt& attempt) {
  const Clock& clock = Clock::Real();
  absl::Time end = absl::InfinitePast();
  while (true) {
    const int64_t seen = moves_;
    absl::Status status = attempt();
    if (!absl::IsUnavailable(status)) return status;
    // Another copy is to be asked.
    if (replicator_ != nullptr && !replicator_->CheckPrimary().ok()) {
      return status;
    }
    if (end == absl::InfinitePast()) end = clock.Now() + kMoveWait;
    MutexLock lock(mu_);
    while (moves_ == seen && !ended_) {
      const absl::Duration left = end - clock.Now();
      if (left <= absl::ZeroDuration()) return status;
      changed_.WaitFor(mu_, left);
    }
    if (ended_) return status;
  }
}

void ServerImpl::NoteMove() {
  {
    MutexLock lock(mu_);
    ++moves_;
  }
  changed_.NotifyAll();
}

absl::Status ServerImpl::Apply(const v1::PsEntry& entry,
                               absl::string_view payload) {
  absl::Status done;
  absl::StatusOr<Place> place = Place();
  bool snapshot = false;
  const std::string header = entry.SerializeAsString();
  {
    WriterMutexLock lock(state_mu_);
    done = Accept(entry, header, payload);
    snapshot = SnapshotDue();
    if (done.ok()) place = PlaceOfLast();
    if (absl::IsAlreadyExists(done)) place = CheckPlace();
  }
  if (snapshot) WantSnapshot();
  if (done.ok() && (entry.has_map() || entry.has_import())) NoteMove();
  ELASTICDL_RETURN_IF_ERROR(place.status());
  if (done.ok() || absl::IsAlreadyExists(done)) {
    ELASTICDL_RETURN_IF_ERROR(
        Await(*place, absl::InfiniteDuration(), header, payload));
  }
  return done;
}

Server::Moving ServerImpl::moving() const {
  ReaderMutexLock lock(state_mu_);
  return {state_.defined(), state_.map().version(), state_.awaited(),
          state_.leaving()};
}

void ServerImpl::WantSnapshot() {
  {
    MutexLock lock(mu_);
    snapshot_wanted_ = true;
  }
  changed_.NotifyAll();
}

absl::Status ServerImpl::Accept(const v1::PsEntry& entry,
                                absl::string_view header,
                                absl::string_view payload) {
  ELASTICDL_RETURN_IF_ERROR(CheckAnswers());
  ELASTICDL_RETURN_IF_ERROR(state_.Check(entry, payload));
  const absl::Status logged =
      log_ == nullptr ? absl::OkStatus() : log_->Append(header, payload);
  ELASTICDL_RETURN_IF_ERROR(ApplyLogged(logged, entry, payload));
  if (replicator_ != nullptr) replicator_->OnAppended(log_->position());
  return absl::OkStatus();
}

absl::Status ServerImpl::ApplyLogged(const absl::Status& logged,
                                     const v1::PsEntry& entry,
                                     absl::string_view payload) {
  if (absl::IsDataLoss(logged)) {
    broken_ = true;
    End(logged);
  }
  ELASTICDL_RETURN_IF_ERROR(logged);
  const size_t bytes = options_.memory_limit > 0 ? state_.Bytes() : 0;
  absl::Status applied = Failpoint("ps.apply");
  if (applied.ok()) applied = state_.Apply(entry, payload);
  if (applied.ok() && audit_ != nullptr) {
    applied = Failpoint("ps.audit");
    const int64_t number = log_ == nullptr ? entries_++ : log_->position() - 1;
    if (applied.ok()) {
      applied = audit_->Write(number, entry, state_.version(), state_.effect());
    }
  }
  if (!applied.ok()) {
    broken_ = true;
    End(applied);
    return applied;
  }
  if (entry.has_push()) pushes_.fetch_add(1, std::memory_order_relaxed);
  NoteMemory(entry, bytes);
  return absl::OkStatus();
}

Server::Stats ServerImpl::stats() const {
  v1::PsStatus status;
  Stats stats;
  {
    ReaderMutexLock lock(state_mu_);
    state_.FillStatus(status);
    stats.limited_bytes = static_cast<int64_t>(state_.Bytes());
  }
  stats.limit_bytes = static_cast<int64_t>(options_.memory_limit);
  stats.bytes = status.dense_values() * static_cast<int64_t>(sizeof(float));
  for (const v1::PsTableStatus& table : status.tables()) {
    stats.rows += table.rows();
    stats.bytes += table.bytes();
  }
  stats.pulls = pulls_;
  stats.pushes = pushes_;
  return stats;
}

void ServerImpl::HandleStatus(const v1::PsStatusRequest& request,
                              v1::PsReply& reply) {
  v1::PsStatus& status = *reply.mutable_status();
  ReaderMutexLock lock(state_mu_);
  reply.set_version(state_.version());
  if (!state_.map().empty()) FillMap(reply);
  state_.FillStatus(status);
  if (log_ != nullptr) status.set_log_position(log_->position());
  if (request.digest()) status.set_digest(state_.Digest());
  if (request.definition() && state_.defined()) {
    *reply.mutable_entry()->mutable_definition() = state_.definition();
  }
  status.set_pulls(pulls_);
  status.set_pushes(pushes_);
  status.set_repeated_pushes(repeated_);
}

void ServerImpl::FillMap(v1::PsReply& reply) const {
  state_.FillMap(*reply.mutable_map());
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto server = std::make_unique<ServerImpl>(std::move(options));
  ELASTICDL_RETURN_IF_ERROR(server->SetUp());
  return server;
}

}  // namespace elasticdl::ps
