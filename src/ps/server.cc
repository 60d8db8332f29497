#include "elasticdl/ps/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/shared_mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/handshake.h"
#include "push_audit.h"
#include "push_log.h"
#include "server_state.h"
#include "wire.h"

namespace elasticdl::ps {
namespace {

constexpr absl::Duration kGreetTimeout = absl::Seconds(10);
// Of one message once it has begun; a large one over a slow network.
constexpr absl::Duration kMessageTimeout = absl::Minutes(2);
// More workers than any job has.
constexpr size_t kMaxConnections = 4096;
// That have not shown the token yet: strangers cannot use up what there is.
constexpr int kMaxGreetings = 256;
// Before the next try to accept a connection when there was no room for it.
constexpr absl::Duration kNoRoomPause = absl::Milliseconds(100);

uint64_t RandomNumber() {
  uint64_t number = 0;
  std::memcpy(&number, RandomBytes(sizeof(number)).data(), sizeof(number));
  return number;
}

class ServerImpl : public Server {
 public:
  explicit ServerImpl(ServerOptions options)
      : options_(std::move(options)), state_(StateOptions(options_)) {}
  ~ServerImpl() override;

  absl::Status SetUp();
  uint16_t port() const override { return listener_.port(); }
  int64_t version() const override {
    ReaderMutexLock lock(state_mu_);
    return state_.version();
  }
  absl::Status Apply(const v1::PsEntry& entry) override;
  absl::Status Wait() override;
  void Stop() override { End(absl::OkStatus()); }

 private:
  struct Connection {
    net::Socket socket;
    Thread thread;
  };

  static ServerState::Options StateOptions(const ServerOptions& options) {
    return {options.server, options.memory_limit};
  }

  absl::Status OpenLog();
  void AcceptAll();
  void Serve(int64_t id, net::Socket& socket);
  absl::Status ServeOne(net::Socket& socket, Buffer& payload, Buffer& answer);
  void HandleEntry(const v1::PsEntry& entry, absl::string_view payload,
                   v1::PsReply& reply);
  // The log has grown long enough for one.
  void WantSnapshot();
  absl::Status Accept(const v1::PsEntry& entry, absl::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  // Memory is nearly used up, and nobody was told.
  bool WantsWarning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  void Warn() const;
  void HandleStatus(const v1::PsStatusRequest& request, v1::PsReply& reply);
  void WriteSnapshots();
  void FillMap(v1::PsReply& reply) const ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  // The first call decides what Wait returns.
  void End(absl::Status why);
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ServerOptions options_;
  const uint64_t incarnation_ = RandomNumber();
  net::Listener listener_;

  mutable SharedMutex state_mu_;
  ServerState state_ ABSL_GUARDED_BY(state_mu_);
  // Half an entry may be in the state or in the log: nobody may see them.
  bool broken_ ABSL_GUARDED_BY(state_mu_) = false;
  // That memory is nearly used up.
  bool warned_ ABSL_GUARDED_BY(state_mu_) = false;
  // Null: none.
  std::unique_ptr<PushLog> log_ ABSL_GUARDED_BY(state_mu_);
  // Null: none.
  std::unique_ptr<PushAudit> audit_ ABSL_GUARDED_BY(state_mu_);
  // For the audit of a server without a log.
  int64_t entries_ ABSL_GUARDED_BY(state_mu_) = 0;
  std::atomic<int64_t> pulls_ = 0;
  std::atomic<int64_t> pushes_ = 0;
  std::atomic<int64_t> repeated_ = 0;
  std::atomic<int> greetings_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
  bool snapshot_wanted_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_connection_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, std::unique_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);
  // Whose threads are about to end.
  std::vector<int64_t> finished_ ABSL_GUARDED_BY(mu_);

  // Wakes the thread that waits for a snapshot.
  Fd stop_event_;
  Thread snapshots_;
  Thread acceptor_;
};

absl::Status ServerImpl::OpenLog() {
  WriterMutexLock lock(state_mu_);
  if (!options_.audit.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        audit_, PushAudit::Open(options_.audit, options_.server));
  }
  if (!options_.log_dir.empty()) {
    PushLog::Options log;
    log.dir = options_.log_dir;
    log.snapshot_bytes = options_.snapshot_bytes;
    if (audit_ != nullptr) {
      // What was logged but not audited when the last process ended.
      log.replayed = [audit = audit_.get()](int64_t number,
                                            const v1::PsEntry& entry,
                                            int64_t before, int64_t after) {
        return audit->Write(number, entry, before, after);
      };
    }
    ELASTICDL_ASSIGN_OR_RETURN(
        log_, PushLog::Open(std::move(log), StateOptions(options_), state_));
    if (log_->position() > 0) {
      LogInfo("server ", options_.server, " goes on from its log: version ",
              state_.version(), ", ", log_->position(), " entries");
    }
  }
  if (audit_ != nullptr && (log_ == nullptr || log_->position() == 0)) {
    return audit_->Clear();
  }
  return absl::OkStatus();
}

absl::Status ServerImpl::SetUp() {
  ELASTICDL_RETURN_IF_ERROR(OpenLog());
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

// ---- connections ----

void ServerImpl::AcceptAll() {
  while (true) {
    absl::StatusOr<net::Socket> socket = listener_.Accept();
    if (absl::IsCancelled(socket.status())) return;
    if (!socket.ok() && !absl::IsResourceExhausted(socket.status())) {
      return End(socket.status());
    }
    MutexLock lock(mu_);
    Reap();
    if (ended_) return;
    if (!socket.ok()) {
      LogWarning("a connection has to wait: ", socket.status().message());
      changed_.WaitFor(mu_, kNoRoomPause);
      continue;
    }
    if (connections_.size() >= kMaxConnections || greetings_ >= kMaxGreetings) {
      LogWarning("refused a connection: ", connections_.size(), " are open");
      continue;
    }
    const int64_t id = next_connection_++;
    auto connection = std::make_unique<Connection>();
    connection->socket = *std::move(socket);
    net::Socket& own = connection->socket;
    greetings_.fetch_add(1);
    try {
      connection->thread = Thread(absl::StrCat("worker ", id),
                                  [this, id, &own] { Serve(id, own); });
    } catch (const std::system_error& error) {
      // Too many threads; others will end.
      greetings_.fetch_sub(1);
      LogWarning("refused a connection: ", error.what());
      continue;
    }
    connections_.emplace(id, std::move(connection));
  }
}

void ServerImpl::Reap() {
  for (const int64_t id : finished_) connections_.erase(id);
  finished_.clear();
}

void ServerImpl::Serve(int64_t id, net::Socket& socket) {
  absl::Status status = net::GreetAsListener(socket, options_.secret,
                                             options_.server, kGreetTimeout);
  greetings_.fetch_sub(1);
  if (!status.ok() && !absl::IsUnavailable(status)) {
    LogWarning("refused a connection: ", status.message());
  }
  Buffer payload;
  Buffer answer;
  while (status.ok()) {
    status = ServeOne(socket, payload, answer);
    payload.Trim();
    answer.Trim();
  }
  if (absl::IsInvalidArgument(status)) {
    LogWarning("ended a connection: ", status.message());
  }
  // The socket is closed with the connection; the other end hears of it now.
  socket.ShutDown();
  MutexLock lock(mu_);
  finished_.push_back(id);
}

absl::Status ServerImpl::ServeOne(net::Socket& socket, Buffer& payload,
                                  Buffer& answer) {
  ELASTICDL_RETURN_IF_ERROR(socket.WaitReadable());
  v1::PsRequest request;
  ELASTICDL_RETURN_IF_ERROR(
      ReadMessage(socket, request, payload, kMessageTimeout));
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
      ReaderMutexLock lock(state_mu_);
      const absl::Status pulled =
          broken_ ? absl::UnavailableError("the server is ending")
                  : state_.Pull(request.pull(), payload.view(), reply, answer);
      reply.set_code(static_cast<int>(pulled.code()));
      reply.set_message(std::string(pulled.message()));
      if (absl::IsFailedPrecondition(pulled)) FillMap(reply);
      if (!pulled.ok()) answer.Resize(0);
      break;
    }
    case v1::PsRequest::kRead: {
      ReaderMutexLock lock(state_mu_);
      const absl::Status read =
          broken_ ? absl::UnavailableError("the server is ending")
                  : state_.Read(request.read(), reply, answer);
      reply.set_code(static_cast<int>(read.code()));
      reply.set_message(std::string(read.message()));
      if (absl::IsFailedPrecondition(read)) FillMap(reply);
      if (!read.ok()) answer.Resize(0);
      break;
    }
    case v1::PsRequest::kStatus:
      HandleStatus(request.status(), reply);
      break;
    case v1::PsRequest::REQUEST_NOT_SET:
      reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
      reply.set_message("a request of no known kind");
      break;
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.reply"));
  return WriteMessage(socket, reply, {{answer.data(), answer.size()}},
                      kMessageTimeout);
}

void ServerImpl::HandleEntry(const v1::PsEntry& entry,
                             absl::string_view payload, v1::PsReply& reply) {
  absl::Status done;
  bool snapshot = false;
  bool nearly_full = false;
  {
    WriterMutexLock lock(state_mu_);
    done = Accept(entry, payload);
    nearly_full = WantsWarning();
    if (absl::IsAlreadyExists(done)) {
      done = absl::OkStatus();
      if (entry.has_push()) {
        repeated_.fetch_add(1, std::memory_order_relaxed);
        reply.set_repeated_push(true);
      }
    }
    if (absl::IsFailedPrecondition(done)) FillMap(reply);
    reply.set_version(state_.version());
    snapshot = log_ != nullptr && log_->WantsSnapshot();
  }
  reply.set_code(static_cast<int>(done.code()));
  reply.set_message(std::string(done.message()));
  if (snapshot) WantSnapshot();
  if (nearly_full) Warn();
}

bool ServerImpl::WantsWarning() {
  return !warned_ && state_.NearlyFull() && (warned_ = true);
}

void ServerImpl::Warn() const {
  LogWarning("server ", options_.server, " uses 90 % of the ",
             options_.memory_limit,
             " bytes that it may use (--ps_memory_limit); beyond them, pushes "
             "are refused and the job fails");
}

absl::Status ServerImpl::Apply(const v1::PsEntry& entry) {
  absl::Status done;
  bool snapshot = false;
  bool nearly_full = false;
  {
    WriterMutexLock lock(state_mu_);
    done = Accept(entry, "");
    nearly_full = WantsWarning();
    snapshot = log_ != nullptr && log_->WantsSnapshot();
  }
  if (snapshot) WantSnapshot();
  if (nearly_full) Warn();
  return done;
}

void ServerImpl::WantSnapshot() {
  {
    MutexLock lock(mu_);
    snapshot_wanted_ = true;
  }
  changed_.NotifyAll();
}

absl::Status ServerImpl::Accept(const v1::PsEntry& entry,
                                absl::string_view payload) {
  if (broken_) return absl::UnavailableError("the server is ending");
  ELASTICDL_RETURN_IF_ERROR(state_.Check(entry, payload));
  if (log_ != nullptr) {
    const absl::Status logged =
        log_->Append(entry.SerializeAsString(), payload);
    if (absl::IsDataLoss(logged)) {
      broken_ = true;
      End(logged);
    }
    ELASTICDL_RETURN_IF_ERROR(logged);
  }
  const int64_t before = state_.version();
  absl::Status applied = Failpoint("ps.apply");
  if (applied.ok()) applied = state_.Apply(entry, payload);
  if (applied.ok() && audit_ != nullptr) {
    applied = Failpoint("ps.audit");
    const int64_t number = log_ == nullptr ? entries_++ : log_->position() - 1;
    if (applied.ok()) {
      applied = audit_->Write(number, entry, before, state_.version());
    }
  }
  if (!applied.ok()) {
    broken_ = true;
    End(applied);
    return applied;
  }
  if (entry.has_push()) pushes_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
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
  status.set_pulls(pulls_);
  status.set_pushes(pushes_);
  status.set_repeated_pushes(repeated_);
}

void ServerImpl::FillMap(v1::PsReply& reply) const {
  *reply.mutable_map() = state_.Header(0).map();
}

// ---- snapshots ----

void ServerImpl::WriteSnapshots() {
  while (true) {
    {
      MutexLock lock(mu_);
      while (!snapshot_wanted_ && !ended_) changed_.Wait(mu_);
      if (ended_) return;
      snapshot_wanted_ = false;
    }
    int child_fd = -1;
    {
      WriterMutexLock lock(state_mu_);
      if (broken_) return;
      if (!log_->WantsSnapshot()) continue;
      const absl::Status begun = log_->BeginSnapshot(state_);
      if (!begun.ok()) {
        LogWarning("no snapshot: ", begun.message());
        continue;
      }
      child_fd = log_->snapshot_fd();
    }
    pollfd waits[2] = {{child_fd, POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    while (poll(waits, 2, -1) < 0 && errno == EINTR) {
    }
    // The log's destructor ends the child.
    if (waits[0].revents == 0) return;
    WriterMutexLock lock(state_mu_);
    if (broken_) return;
    const absl::Status finished = log_->FinishSnapshot();
    if (!finished.ok()) LogWarning("no snapshot: ", finished.message());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  auto server = std::make_unique<ServerImpl>(std::move(options));
  ELASTICDL_RETURN_IF_ERROR(server->SetUp());
  return server;
}

}  // namespace elasticdl::ps
