// The connections of a server, and how much they may bring at once.
#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/net/handshake.h"
#include "server_impl.h"

namespace elasticdl::ps {
namespace {

constexpr absl::Duration kGreetTimeout = absl::Seconds(10);
// More workers than any job has.
constexpr size_t kMaxConnections = 4096;
// That have not shown the token yet: strangers cannot use up what there is.
constexpr int kMaxGreetings = 256;
// Before the next try to accept a connection when there was no room for it.
constexpr absl::Duration kNoRoomPause = absl::Milliseconds(100);
// Of requests that are held at once, without a limit of memory, and at least:
// one large minibatch.
constexpr uint64_t kRequestBytes = uint64_t{1} << 30;
constexpr uint64_t kFewestRequestBytes = uint64_t{64} << 20;
// For others to end; below a client's patience for one answer.
constexpr absl::Duration kRoomWait = absl::Seconds(30);

}  // namespace

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
    if (connections_.size() >= kMaxConnections) {
      if (const auto others = refusals_.Allow(Clock::Real().Now())) {
        LogWarning("refused a connection: ", connections_.size(), " are open",
                   LogLimit::Describe(*others));
      }
      continue;
    }
    if (greetings_ >= kMaxGreetings) EndOldestGreeting();
    const int64_t id = next_connection_++;
    auto connection = std::make_unique<Connection>();
    connection->socket = *std::move(socket);
    Connection& own = *connection;
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
    num_connections_ = connections_.size();
  }
}

// Whoever knows the token shows it at once.
void ServerImpl::EndOldestGreeting() {
  for (auto& [id, connection] : connections_) {
    if (!connection->greeting.exchange(false)) continue;
    connection->socket.ShutDown();
    return;
  }
}

void ServerImpl::Reap() {
  for (const int64_t id : finished_) connections_.erase(id);
  finished_.clear();
  num_connections_ = connections_.size();
}

void ServerImpl::Serve(int64_t id, Connection& connection) {
  net::Socket& socket = connection.socket;
  absl::Status status = net::GreetAsListener(socket, options_.secret,
                                             options_.server, kGreetTimeout);
  greetings_.fetch_sub(1);
  connection.greeting = false;
  if (!status.ok() && !absl::IsUnavailable(status)) {
    if (const auto others = refusals_.Allow(Clock::Real().Now())) {
      LogWarning("refused a connection: ", status.message(),
                 LogLimit::Describe(*others));
    }
  }
  std::unique_ptr<Follower> follower;
  if (replicator_ != nullptr) {
    follower =
        std::make_unique<Follower>(static_cast<FollowedServer&>(*this), id,
                                   options_.log_dir, StateOptions(options_));
  }
  Buffer payload;
  Buffer answer;
  while (status.ok()) {
    status = ServeOne(socket, follower.get(), payload, answer);
    const size_t kept = KeptBytes();
    payload.Trim(kept);
    answer.Trim(kept);
  }
  if (absl::IsInvalidArgument(status)) {
    LogWarning("ended a connection: ", status.message());
  }
  // The socket is closed with the connection; the other end hears of it now.
  socket.ShutDown();
  MutexLock lock(mu_);
  finished_.push_back(id);
}

// ---- memory ----

// What connections keep for their next request is a quarter of what requests
// may have, however many connections there are: each keeps two buffers.
size_t ServerImpl::KeptBytes() const {
  constexpr uint64_t kFewest = uint64_t{64} << 10;
  constexpr uint64_t kMost = uint64_t{16} << 20;
  const uint64_t share = RequestBytes(options_) / 8 /
                         std::max<uint64_t>(num_connections_.load(), 1);
  return std::clamp(share, kFewest, kMost);
}

uint64_t ServerImpl::RequestBytes(const ServerOptions& options) {
  if (options.request_bytes > 0) return options.request_bytes;
  if (options.memory_limit == 0) return kRequestBytes;
  return std::max<uint64_t>(options.memory_limit / 8, kFewestRequestBytes);
}

// Servers do not wait for each other here: what comes from a primary, and the
// buckets that move, are few at a time, and pushes that have room wait for
// them.
absl::StatusOr<ByteBudget::Share> ServerImpl::MakeRoom(
    const v1::PsRequest& request, uint64_t payload_bytes) {
  uint64_t bytes = payload_bytes;
  if (request.has_pull() || request.has_read()) {
    ReaderMutexLock lock(state_mu_);
    bytes += request.has_pull()
                 ? state_.AnswerBytes(request.pull(), payload_bytes)
                 : state_.AnswerBytes(request.read());
  } else if (!request.has_entry()) {
    return ByteBudget::Share();
  }
  return budget_.Take(bytes, kRoomWait);
}

}  // namespace elasticdl::ps
