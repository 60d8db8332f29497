#include "tcp/mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// How long to spin before sleeping: a sleep and a wakeup take about as long as
// a peer that is already working needs to answer.
constexpr int64_t kSpinNanos = 20000;
// Spin instead of sleeping?
class Spin {
 public:
  bool GoOn(bool moved) {
    if (moved) {
      until_ = 0;
      return true;
    }
    const int64_t now = Deadline::Now();
    if (until_ == 0) until_ = now + kSpinNanos;
    if (now < until_) return true;
    until_ = 0;
    return false;
  }

 private:
  int64_t until_ = 0;
};

// Per call, so that sending and receiving take turns.
constexpr size_t kTurnBytes = 256 << 10;
// Received data is added up in chunks that stay in the cache.
constexpr size_t kChunkBytes = 128 << 10;

}  // namespace

AbortSignal::AbortSignal() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ELASTICDL_CHECK(event_.valid());
}

void AbortSignal::Raise(const absl::Status& why) {
  {
    MutexLock lock(mu_);
    if (raised_.load()) return;
    why_ = AsAborted(why);
    raised_.store(true);
  }
  const uint64_t one = 1;
  // Cannot fail: it is written once.
  [[maybe_unused]] const ssize_t written =
      write(event_.get(), &one, sizeof(one));
}

absl::Status AbortSignal::Check() {
  if (!raised_.load()) return absl::OkStatus();
  MutexLock lock(mu_);
  return why_;
}

TcpMesh::TcpMesh(int rank, std::vector<Fd> sockets)
    : rank_(rank), sockets_(std::move(sockets)) {}

void TcpMesh::Abort(const absl::Status& why) {
  abort_.Raise(why);
  for (const Fd& socket : sockets_) {
    if (socket.valid()) shutdown(socket.get(), SHUT_RDWR);
  }
}

absl::Status TcpMesh::EndWith(absl::Status status) {
  Abort(status);
  return status;
}

absl::Status TcpMesh::Broken(int rank, const std::string& what) {
  // An abort also closes the connections; its reason explains more.
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  return EndWith(
      Blame(rank, absl::AbortedError(absl::StrCat("rank ", rank_, " lost rank ",
                                                  rank, ": ", what))));
}

absl::StatusOr<size_t> TcpMesh::SendSome(MeshSend& sending) {
  const ssize_t sent =
      send(sockets_[sending.rank].get(), sending.data,
           std::min(sending.bytes, kTurnBytes), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return Broken(sending.rank, std::strerror(errno));
  }
  sending.data += sent;
  sending.bytes -= static_cast<size_t>(sent);
  return static_cast<size_t>(sent);
}

absl::StatusOr<size_t> TcpMesh::ReceiveSome(int rank, char* to, size_t bytes) {
  const ssize_t got =
      recv(sockets_[rank].get(), to, std::min(bytes, kTurnBytes), MSG_DONTWAIT);
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0) return Broken(rank, "it closed the connection");
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return Broken(rank, std::strerror(errno));
}

absl::Status TcpMesh::WaitFor(const std::vector<Awaited>& awaited,
                              Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  std::vector<pollfd> fds = {{abort_.fd(), POLLIN, 0}};
  for (const Awaited& peer : awaited) {
    fds.push_back({sockets_[peer.rank].get(), peer.events, 0});
  }
  const timespec left = absl::ToTimespec(deadline.Left());
  const int ready = ppoll(fds.data(), fds.size(), &left, nullptr);
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  if (ready != 0) return absl::OkStatus();
  const int late = awaited.front().rank;
  return EndWith(Blame(late, absl::DeadlineExceededError(absl::StrCat(
                                 "rank ", rank_, " heard nothing from rank ",
                                 late, " in time"))));
}

absl::Status TcpMesh::Move(std::vector<MeshSend> sends,
                           std::vector<MeshReceive> receives,
                           Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  Spin spin;
  while (true) {
    bool moved = false;
    std::vector<Awaited> awaited;
    for (MeshSend& sending : sends) {
      if (sending.bytes == 0) continue;
      ELASTICDL_ASSIGN_OR_RETURN(const size_t sent, SendSome(sending));
      moved = moved || sent > 0;
      if (sending.bytes > 0) awaited.push_back({sending.rank, POLLOUT});
    }
    for (MeshReceive& receive : receives) {
      if (receive.bytes == 0) continue;
      ELASTICDL_ASSIGN_OR_RETURN(
          const size_t got,
          ReceiveSome(receive.rank, receive.data, receive.bytes));
      receive.data += got;
      receive.bytes -= got;
      moved = moved || got > 0;
      if (receive.bytes > 0) awaited.push_back({receive.rank, POLLIN});
    }
    if (awaited.empty()) return absl::OkStatus();
    if (spin.GoOn(moved)) continue;
    ELASTICDL_RETURN_IF_ERROR(WaitFor(awaited, deadline));
  }
}

absl::Status TcpMesh::MoveInChunks(MeshSend send, const Incoming& incoming,
                                   Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  chunk_.resize(kChunkBytes);
  Spin spin;
  size_t done = 0;
  size_t filled = 0;
  while (done < incoming.bytes || send.bytes > 0) {
    bool moved = false;
    std::vector<Awaited> awaited;
    if (send.bytes > 0) {
      ELASTICDL_ASSIGN_OR_RETURN(const size_t sent, SendSome(send));
      moved = sent > 0;
      awaited.push_back({send.rank, POLLOUT});
    }
    if (done < incoming.bytes) {
      const size_t chunk = std::min(kChunkBytes, incoming.bytes - done);
      ELASTICDL_ASSIGN_OR_RETURN(
          const size_t got,
          ReceiveSome(incoming.rank, chunk_.data() + filled, chunk - filled));
      filled += got;
      moved = moved || got > 0;
      if (filled == chunk) {
        incoming.received(chunk_.data(), done, chunk);
        done += chunk;
        filled = 0;
      }
      awaited.push_back({incoming.rank, POLLIN});
    }
    if (spin.GoOn(moved)) continue;
    ELASTICDL_RETURN_IF_ERROR(WaitFor(awaited, deadline));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TcpMesh::SendFlow(const MeshFlow& flow, FlowState& state,
                                       bool& blocked) {
  bool moved = false;
  blocked = false;
  size_t turn = kTurnBytes;
  while (turn > 0 && state.out < flow.out.size()) {
    const MeshFlow::Out& piece = flow.out[state.out];
    size_t ready = piece.bytes;
    const auto after = static_cast<size_t>(piece.after);
    // It has come in as far as it can be passed on.
    if (piece.after >= 0 && after >= state.in) {
      ready = after == state.in ? state.received : 0;
    }
    if (ready == state.sent) return moved;
    if (state.sent == 0) ELASTICDL_RETURN_IF_ERROR(Failpoint(flow.failpoint));
    MeshSend sending{flow.to, piece.data + state.sent,
                     std::min(turn, ready - state.sent)};
    const size_t wanted = sending.bytes;
    ELASTICDL_ASSIGN_OR_RETURN(const size_t sent, SendSome(sending));
    moved = moved || sent > 0;
    turn -= sent;
    state.sent += sent;
    if (sent < wanted) {
      blocked = true;
      return moved;
    }
    if (state.sent == piece.bytes) {
      ++state.out;
      state.sent = 0;
    }
  }
  return moved;
}

absl::StatusOr<bool> TcpMesh::ReceiveFlow(const MeshFlow& flow,
                                          FlowState& state) {
  const MeshFlow::In& piece = flow.in[state.in];
  char* const own = piece.data + state.received;
  const size_t left = piece.bytes - state.received;
  const size_t chunk = std::min(kChunkBytes, left);
  char* const to = piece.add ? chunk_.data() + state.filled : own;
  ELASTICDL_ASSIGN_OR_RETURN(
      const size_t got,
      ReceiveSome(flow.from, to, piece.add ? chunk - state.filled : left));
  if (!piece.add) {
    state.received += got;
  } else if ((state.filled += got) == chunk) {
    flow.sum(chunk_.data(), own, chunk);
    state.received += chunk;
    state.filled = 0;
  }
  if (state.received == piece.bytes) {
    ++state.in;
    state.received = 0;
  }
  return got > 0;
}

absl::Status TcpMesh::RunFlow(const MeshFlow& flow, Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(abort_.Check());
  chunk_.resize(kChunkBytes);
  Spin spin;
  FlowState state;
  while (state.out < flow.out.size() || state.in < flow.in.size()) {
    bool blocked = false;
    ELASTICDL_ASSIGN_OR_RETURN(bool moved, SendFlow(flow, state, blocked));
    std::vector<Awaited> awaited;
    if (blocked) awaited.push_back({flow.to, POLLOUT});
    if (state.in < flow.in.size()) {
      ELASTICDL_ASSIGN_OR_RETURN(const bool got, ReceiveFlow(flow, state));
      moved = moved || got;
      awaited.push_back({flow.from, POLLIN});
    }
    if (spin.GoOn(moved)) continue;
    ELASTICDL_RETURN_IF_ERROR(WaitFor(awaited, deadline));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::collective
