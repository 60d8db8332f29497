#include "tcp/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "tcp/handshake.h"

namespace elasticdl::collective {
namespace {

// The number of unproved connections, in addition to one per member. Beyond it
// the oldest of them is dropped.
constexpr size_t kMaxStrangers = 64;

}  // namespace

TcpRendezvous::TcpRendezvous(const WorldSpec& world,
                             const TcpListener& listener,
                             std::vector<int> peers, AbortSignal& abort)
    : world_(world),
      listener_(listener),
      peers_(std::move(peers)),
      abort_(abort),
      done_(static_cast<size_t>(world.size())) {}

absl::Status TcpRendezvous::Gone(int rank, absl::string_view why) const {
  const TcpAddress& address = addresses_[rank];
  return Blame(rank, absl::AbortedError(absl::StrCat(
                         "connect to rank ", rank, " at ", address.host,
                         " port ", address.port, ": ", why)));
}

absl::StatusOr<std::vector<Fd>> TcpRendezvous::Run(
    const std::vector<TcpAddress>& addresses, Deadline& deadline) {
  addresses_ = addresses;
  ELASTICDL_RETURN_IF_ERROR(DialAll());
  while (num_done_ < static_cast<int>(peers_.size())) {
    ELASTICDL_RETURN_IF_ERROR(WaitAndHandle(deadline));
  }
  return std::move(done_);
}

absl::Status TcpRendezvous::DialAll() {
  for (const int rank : peers_) {
    absl::StatusOr<Fd> socket = Dial(addresses_[rank]);
    if (!socket.ok()) return Gone(rank, socket.status().message());
    const State state = rank < world_.rank ? State::kDialling : State::kProbing;
    connections_.push_back({state, rank, std::move(*socket), "", "", ""});
  }
  return absl::OkStatus();
}

absl::Status TcpRendezvous::WaitAndHandle(Deadline& deadline) {
  std::vector<pollfd> fds = {{abort_.fd(), POLLIN, 0},
                             {listener_.socket.get(), POLLIN, 0}};
  std::vector<Connection*> polled;
  for (Connection& connection : connections_) {
    const short events =
        connection.state == State::kDialling ? POLLOUT : POLLIN;
    fds.push_back({connection.socket.get(), events, 0});
    polled.push_back(&connection);
  }
  const timespec left = absl::ToTimespec(deadline.Left());
  const int ready = ppoll(fds.data(), fds.size(), &left, nullptr);
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  if (ready == 0) {
    const int late =
        *std::find_if(peers_.begin(), peers_.end(),
                      [this](int rank) { return !done_[rank].valid(); });
    return Blame(late, absl::DeadlineExceededError(absl::StrCat(
                           "rank ", late, " did not connect in time")));
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if (fds[i + 2].revents == 0) continue;
    ELASTICDL_RETURN_IF_ERROR(Handle(*polled[i]));
  }
  if (fds[1].revents != 0) AcceptAll();
  connections_.remove_if([](const Connection& connection) {
    return connection.state == State::kDone ||
           connection.state == State::kDropped;
  });
  return absl::OkStatus();
}

void TcpRendezvous::AcceptAll() {
  while (true) {
    Fd socket(accept4(listener_.socket.get(), nullptr, nullptr,
                      SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    if (!Configure(socket.get()).ok()) continue;
    const auto unproved = [](const Connection& connection) {
      return connection.state == State::kAwaitHello;
    };
    const size_t limit = kMaxStrangers + 2 * peers_.size();
    if (static_cast<size_t>(std::count_if(
            connections_.begin(), connections_.end(), unproved)) >= limit) {
      connections_.erase(
          std::find_if(connections_.begin(), connections_.end(), unproved));
    }
    connections_.push_back(
        {State::kAwaitHello, -1, std::move(socket), "", "", ""});
  }
}

absl::Status TcpRendezvous::Handle(Connection& connection) {
  switch (connection.state) {
    case State::kDialling:
    case State::kAwaitReply:
      return HandleAsDialler(connection);
    case State::kAwaitHello:
    case State::kAwaitConfirm:
      HandleAsListener(connection);
      return absl::OkStatus();
    case State::kProbing:
      return HandleProbe(connection);
    case State::kDone:
    case State::kDropped:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TcpRendezvous::Read(Connection& connection,
                                         size_t wanted) {
  std::string& received = connection.received;
  while (received.size() < wanted) {
    char buffer[256];
    const ssize_t got =
        recv(connection.socket.get(), buffer,
             std::min(sizeof(buffer), wanted - received.size()), MSG_DONTWAIT);
    if (got > 0) {
      received.append(buffer, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    return absl::UnavailableError(got == 0 ? "it closed the connection"
                                           : std::strerror(errno));
  }
  return true;
}

absl::Status TcpRendezvous::Send(Connection& connection,
                                 const std::string& message) {
  // The empty buffer of a new connection has room for these few bytes.
  const ssize_t sent = send(connection.socket.get(), message.data(),
                            message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  return absl::UnavailableError(sent < 0 ? std::strerror(errno)
                                         : "it takes no bytes");
}

absl::Status TcpRendezvous::HandleAsDialler(Connection& connection) {
  const int rank = connection.rank;
  if (connection.state == State::kDialling) {
    absl::Status status = DialResult(connection.socket.get());
    if (!status.ok()) return Gone(rank, status.message());
    connection.hello = TcpHandshake::Hello(world_, rank);
    status = Send(connection, connection.hello);
    if (!status.ok()) return Gone(rank, status.message());
    connection.state = State::kAwaitReply;
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> complete =
      Read(connection, TcpHandshake::kReplyBytes);
  if (!complete.ok()) return Gone(rank, complete.status().message());
  if (!*complete) return absl::OkStatus();
  if (!TcpHandshake::CheckReply(world_, connection.hello,
                                connection.received)) {
    return Blame(rank, absl::PermissionDeniedError(
                           absl::StrCat("who answers at the address of rank ",
                                        rank, " does not know the secret")));
  }
  const absl::Status status = Send(
      connection,
      TcpHandshake::Confirm(world_, connection.hello, connection.received));
  if (!status.ok()) return Gone(rank, status.message());
  Finish(connection);
  return absl::OkStatus();
}

void TcpRendezvous::HandleAsListener(Connection& connection) {
  const size_t wanted = connection.state == State::kAwaitHello
                            ? TcpHandshake::kHelloBytes
                            : TcpHandshake::kConfirmBytes;
  const absl::StatusOr<bool> complete = Read(connection, wanted);
  if (!complete.ok()) {
    // A stranger, a probe, or a member that died, which its probe will show.
    connection.state = State::kDropped;
  } else if (*complete && connection.state == State::kAwaitHello) {
    TakeHello(connection);
  } else if (*complete) {
    TakeConfirm(connection);
  }
}

void TcpRendezvous::TakeHello(Connection& connection) {
  const absl::StatusOr<int> rank =
      TcpHandshake::ReadHello(world_, connection.received);
  if (!rank.ok()) {
    LogWarning("refused a connection to generation ", world_.generation, ": ",
               rank.status().message());
    connection.state = State::kDropped;
    return;
  }
  if (!std::binary_search(peers_.begin(), peers_.end(), *rank)) {
    LogWarning("refused a connection to generation ", world_.generation,
               ": rank ", *rank, " is no peer of rank ", world_.rank);
    connection.state = State::kDropped;
    return;
  }
  connection.rank = *rank;
  connection.hello = std::exchange(connection.received, "");
  connection.reply = TcpHandshake::Reply(world_, connection.hello);
  connection.state = Send(connection, connection.reply).ok()
                         ? State::kAwaitConfirm
                         : State::kDropped;
}

void TcpRendezvous::TakeConfirm(Connection& connection) {
  if (connection.received ==
          TcpHandshake::Confirm(world_, connection.hello, connection.reply) &&
      !done_[connection.rank].valid()) {
    Finish(connection);
  } else {
    connection.state = State::kDropped;
  }
}

void TcpRendezvous::Finish(Connection& connection) {
  done_[connection.rank] = std::move(connection.socket);
  connection.state = State::kDone;
  ++num_done_;
}

// Does `rank` have a connection that has passed its checks so far?
bool TcpRendezvous::Heard(int rank) const {
  return done_[rank].valid() ||
         std::any_of(connections_.begin(), connections_.end(),
                     [rank](const Connection& connection) {
                       return connection.rank == rank &&
                              connection.state == State::kAwaitConfirm;
                     });
}

// Nobody sends on a probe. If it ends, it was refused, or the other end is
// gone, or it has finished its own rendezvous; in that case it is already
// connected.
absl::Status TcpRendezvous::HandleProbe(Connection& connection) {
  const absl::StatusOr<bool> complete = Read(connection, 1);
  if (complete.ok() && !*complete) return absl::OkStatus();
  if (!Heard(connection.rank)) return Gone(connection.rank, "it is gone");
  connection.state = State::kDropped;
  return absl::OkStatus();
}

}  // namespace elasticdl::collective
