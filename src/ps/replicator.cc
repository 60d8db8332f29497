#include "replicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/net/handshake.h"

namespace elasticdl::ps {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kSendTimeout = absl::Seconds(10);
// A backup frees what it has first, which may be many gigabytes.
constexpr absl::Duration kForgetTimeout = absl::Minutes(1);
// It writes and reads a whole snapshot before it answers; its disk may be slow.
constexpr absl::Duration kPieceTimeout = absl::Minutes(1);
constexpr absl::Duration kSynchronizeTimeout = absl::Minutes(10);
// Something is sent at least so often, and answered at once: a host that is
// gone is noticed.
constexpr absl::Duration kBeat = absl::Seconds(1);
// It may be held up by its disk; to begin anew costs much more than to wait.
constexpr absl::Duration kAckTimeout = absl::Seconds(20);
// How often whoever waits for a backup looks whether it is silent.
constexpr absl::Duration kSilenceCheck = absl::Seconds(1);
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

Replicator::Replicator(Options options) : options_(std::move(options)) {
  feeder_ = Thread("replicate", [this] { Run(); });
}

Replicator::~Replicator() {
  Stop();
  feeder_.Join();
}

void Replicator::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    if (socket_ != nullptr) socket_->ShutDown();
    WakeAll();
  }
  changed_.NotifyAll();
}

// ---- the role ----

bool Replicator::Assign(const v1::PsAssignment& assignment, int64_t position) {
  bool counts = false;
  {
    MutexLock lock(mu_);
    counts = role_.Assign(assignment);
    ++assigned_;
    appended_ = position;
    role_.OnAppended(position);
    // To another backup, or to none: whoever is in the middle of sending or of
    // a connection is not to wait for the old one.
    if (socket_ != nullptr && !Wanted(fed_address_, fed_term_)) {
      socket_->ShutDown();
      // What is still to be read from it is void. Nobody waits until its
      // threads have noticed.
      constexpr char kAway[] = "the master reports that it is not attached";
      heard_.Update(absl::CancelledError(kAway));
      if (role_.term() == fed_term_) role_.OnBackupLost(kAway);
    }
    WakeAll();
  }
  changed_.NotifyAll();
  return counts;
}

void Replicator::Ask() {
  PartRole::Tell tell;
  {
    MutexLock lock(mu_);
    tell = role_.Question();
  }
  Tell(std::move(tell));
}

absl::StatusOr<int64_t> Replicator::CheckPrimary() const {
  MutexLock lock(mu_);
  if (role_.primary()) return role_.term();
  return absl::UnavailableError("this copy is not the primary");
}

absl::Status Replicator::CheckFollow(int64_t term) const {
  MutexLock lock(mu_);
  return role_.CheckFollow(term);
}

int64_t Replicator::term() const {
  MutexLock lock(mu_);
  return role_.term();
}

void Replicator::Describe(v1::PsCopy& copy) const {
  MutexLock lock(mu_);
  role_.Describe(copy);
}

void Replicator::OnAppended(int64_t position) {
  MutexLock lock(mu_);
  appended_ = position;
  role_.OnAppended(position);
}

void Replicator::Send(int64_t term, int64_t position,
                      std::vector<iovec> frame) {
  net::Socket* socket = nullptr;
  LogReader* log = nullptr;
  bool feeder_waits = false;
  {
    MutexLock lock(mu_);
    // Whoever sends wakes it afterwards if there is more.
    feeder_waits = waiting_ != nullptr && !sending_;
    // Only to a backup that keeps up: then nobody waits longer for the socket
    // than for the answer.
    if (!frame.empty() && waiting_ != nullptr && !sending_ && heard_.ok() &&
        role_.state() == PartRole::State::kCurrent && term == fed_term_ &&
        Wanted(fed_address_, term) && waiting_->position() == position - 1) {
      sending_ = true;
      socket = socket_;
      log = waiting_;
    }
  }
  if (socket == nullptr) {
    if (feeder_waits) changed_.NotifyAll();
    return;
  }
  uint64_t bytes = 0;
  for (const iovec& part : frame) bytes += part.iov_len;
  const absl::Status sent =
      SendFrames(*socket, std::move(frame), /*current=*/true);
  bool more = false;
  {
    MutexLock lock(mu_);
    sending_ = false;
    log->Skip(bytes);
    reads_from_ = log->position();
    heard_.Update(sent);
    // What others have left to the feeder, or told it, meanwhile.
    more = !heard_.ok() || !Wanted(fed_address_, term) ||
           appended_ > log->position();
  }
  if (more) changed_.NotifyAll();
}

void Replicator::OnFollowed() {
  MutexLock lock(mu_);
  role_.OnFollowed();
}

int64_t Replicator::reads_from() const {
  MutexLock lock(mu_);
  return reads_from_;
}

absl::Status Replicator::Await(int64_t term, int64_t position,
                               absl::Duration most) {
  const absl::Time end = Clock::Real().Now() + most;
  MutexLock lock(mu_);
  Waiter waiter;
  waiter.term = term;
  const auto place = waiters_.emplace(position, &waiter);
  absl::Status result = absl::UnavailableError("the server is ending");
  while (!stopped_) {
    const auto may = role_.MayAcknowledge(term, position);
    if (may.has_value()) {
      result = *may;
      break;
    }
    const absl::Time now = Clock::Real().Now();
    if (now >= end) {
      result = absl::UnavailableError("the backup does not answer");
      break;
    }
    if (role_.OnSilence(now - last_ack_)) {
      LogWarning("part ", options_.part, ": the backup at ", fed_address_,
                 " is silent while it catches up; pushes go on without it");
      WakeAll();
      continue;
    }
    waiter.decided.WaitFor(mu_, std::min(end - now, kSilenceCheck));
  }
  waiters_.erase(place);
  return result;
}

void Replicator::WakeDecided() {
  for (const auto& [position, waiter] : waiters_) {
    if (!role_.MayAcknowledge(waiter->term, position).has_value()) return;
    waiter->decided.NotifyOne();
  }
}

void Replicator::WakeAll() {
  for (const auto& [position, waiter] : waiters_) waiter->decided.NotifyOne();
}

void Replicator::Tell(PartRole::Tell tell) {
  if (!tell.has_value()) return;
  tell->set_part(options_.part);
  options_.tell(*tell);
}

// ---- the way to the backup ----

void Replicator::Run() {
  Backoff::Options pauses;
  pauses.initial = absl::Milliseconds(5);
  pauses.max = absl::Seconds(2);
  Backoff backoff(pauses, static_cast<uint64_t>(options_.part));
  while (true) {
    std::string address;
    int64_t term = 0;
    int64_t assigned = 0;
    {
      MutexLock lock(mu_);
      while (!stopped_ && !role_.may_synchronize()) changed_.Wait(mu_);
      if (stopped_) return;
      address = role_.backup_address();
      term = role_.term();
      assigned = assigned_;
      heard_ = absl::OkStatus();
      superseded_ = false;
      // Whatever the reader finds first stays.
      reads_from_ = 0;
    }
    const absl::Time begin = Clock::Real().Now();
    const absl::Status why = Feed(address, term);
    // It worked for a while: the next try may follow at once.
    if (Clock::Real().Now() - begin > absl::Seconds(10)) backoff.Reset();
    PartRole::Tell tell;
    {
      MutexLock lock(mu_);
      reads_from_ = kReadsNothing;
      if (role_.term() == term) {
        if (superseded_) role_.OnNewerTerm();
        tell = role_.OnBackupLost(std::string(why.message()));
      }
      WakeAll();
    }
    LogInfo("part ", options_.part, ": no backup at ", address, ": ",
            why.message());
    Tell(std::move(tell));
    PauseUntil(Clock::Real().Now() + backoff.Next(), assigned);
  }
}

// Entries are appended all the time, which is no reason to try again.
void Replicator::PauseUntil(absl::Time end, int64_t assigned) {
  MutexLock lock(mu_);
  while (!stopped_ && assigned_ == assigned && role_.may_synchronize()) {
    const absl::Duration left = end - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return;
    changed_.WaitFor(mu_, left);
  }
}

absl::Status Replicator::Feed(const std::string& address, int64_t term) {
  ELASTICDL_ASSIGN_OR_RETURN(const net::Address where,
                             net::Address::Parse(address));
  ELASTICDL_ASSIGN_OR_RETURN(net::Socket socket,
                             net::Socket::Connect(where, kConnectTimeout));
  {
    MutexLock lock(mu_);
    if (!Wanted(address, term)) return absl::CancelledError("not wanted");
    socket_ = &socket;
    fed_address_ = address;
    fed_term_ = term;
  }
  absl::Status status = net::GreetAsDialler(socket, options_.secret,
                                            options_.part, kConnectTimeout);
  // Somebody else may have got the port of a backup that died.
  if (!status.ok()) status = absl::UnavailableError(status.message());
  absl::StatusOr<LogReader> log =
      status.ok() ? options_.open_log() : absl::StatusOr<LogReader>(status);
  status = log.status();
  if (status.ok()) status = Synchronize(socket, *log, term);
  if (status.ok()) {
    Thread acks("acks", [&] { HearAcks(socket, term); });
    status = SendEntries(socket, *log, address, term);
    socket.ShutDown();
    acks.Join();
  }
  MutexLock lock(mu_);
  socket_ = nullptr;
  // What the other side said is the better reason.
  return heard_.ok() ? status : heard_;
}

absl::StatusOr<v1::PsReply> Replicator::Expect(net::Socket& socket,
                                               int64_t term,
                                               absl::Duration timeout) {
  v1::PsReply reply;
  Buffer none;
  ELASTICDL_RETURN_IF_ERROR(ReadMessage(socket, reply, none, timeout));
  if (reply.term() > term) {
    MutexLock lock(mu_);
    superseded_ = true;
  }
  ELASTICDL_RETURN_IF_ERROR(absl::Status(
      static_cast<absl::StatusCode>(reply.code()), reply.message()));
  return reply;
}

absl::Status Replicator::Synchronize(net::Socket& socket, LogReader& log,
                                     int64_t term) {
  v1::PsRequest request;
  v1::PsFollow& follow = *request.mutable_follow();
  follow.set_term(term);
  follow.set_position(log.position());
  follow.set_snapshot_bytes(log.snapshot_bytes());
  ELASTICDL_RETURN_IF_ERROR(WriteMessage(socket, request, {}, kSendTimeout));
  ELASTICDL_ASSIGN_OR_RETURN(const v1::PsReply begun,
                             Expect(socket, term, kForgetTimeout));
  {
    MutexLock lock(mu_);
    if (role_.term() != term) return absl::CancelledError("not wanted");
    role_.OnSynchronize(begun.incarnation());
  }
  if (log.snapshot_bytes() == 0) return absl::OkStatus();
  request.mutable_snapshot_piece();
  Buffer piece;
  while (true) {
    ELASTICDL_RETURN_IF_ERROR(log.ReadSnapshot(kPieceBytes, piece));
    if (piece.size() == 0) break;
    ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.synchronize"));
    ELASTICDL_RETURN_IF_ERROR(WriteMessage(
        socket, request, {{piece.data(), piece.size()}}, kPieceTimeout));
  }
  return Expect(socket, term, kSynchronizeTimeout).status();
}

absl::Status Replicator::SendEntries(net::Socket& socket, LogReader& log,
                                     const std::string& address, int64_t term) {
  Buffer frames;
  // The first one, empty perhaps, brings the first answer.
  bool beat = true;
  while (true) {
    int64_t end = 0;
    bool current = false;
    {
      MutexLock lock(mu_);
      waiting_ = &log;
      while (sending_ || (Wanted(address, term) && heard_.ok() && !beat &&
                          appended_ <= log.position())) {
        beat = !changed_.WaitFor(mu_, kBeat);
      }
      waiting_ = nullptr;
      if (!heard_.ok()) return heard_;
      if (!Wanted(address, term)) {
        return absl::CancelledError(
            "the master reports that it is not attached");
      }
      end = appended_;
      current = role_.state() == PartRole::State::kCurrent;
      reads_from_ = log.position();
    }
    beat = false;
    ELASTICDL_RETURN_IF_ERROR(log.ReadEntries(end, kPieceBytes, frames));
    ELASTICDL_RETURN_IF_ERROR(
        SendFrames(socket, {{frames.data(), frames.size()}}, current));
    frames.Trim();
  }
}

absl::Status Replicator::SendFrames(net::Socket& socket,
                                    std::vector<iovec> frames, bool current) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.replicate"));
  v1::PsRequest request;
  request.mutable_frames()->set_current(current);
  return WriteMessage(socket, request, std::move(frames), kSendTimeout);
}

void Replicator::HearAcks(net::Socket& socket, int64_t term) {
  while (true) {
    const absl::StatusOr<v1::PsReply> reply = Expect(socket, term, kAckTimeout);
    PartRole::Tell tell;
    {
      MutexLock lock(mu_);
      if (!reply.ok()) {
        heard_.Update(reply.status());
      } else if (heard_.ok() && role_.term() == term) {
        last_ack_ = Clock::Real().Now();
        tell = role_.OnAck(reply->position());
        WakeDecided();
      }
    }
    if (!reply.ok()) {
      // Whoever sends is to notice, too.
      socket.ShutDown();
      changed_.NotifyAll();
      return;
    }
    Tell(std::move(tell));
  }
}

}  // namespace elasticdl::ps
