#include "elasticdl/net/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"

namespace elasticdl::net {
namespace {

// A kernel answers probes while its host is reachable, whatever the process
// does: one that does not has been cut off.
constexpr int kProbeAfterSeconds = 5;
constexpr int kProbes = 5;
// Also counts while a process that is only slow does not read.
constexpr int kUnackedSeconds = 120;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Lookup(const Address& address, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                  absl::StrCat(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("look up ", address.ToString(),
                                               ": ", gai_strerror(error)));
  }
  return AddressList(list, freeaddrinfo);
}

absl::Status Configure(int fd) {
  const auto set = [fd](int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
  };
  if (!set(IPPROTO_TCP, TCP_NODELAY, 1) || !set(SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterSeconds) ||
      !set(IPPROTO_TCP, TCP_KEEPINTVL, 1) ||
      !set(IPPROTO_TCP, TCP_KEEPCNT, kProbes) ||
      !set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * kUnackedSeconds)) {
    return elasticdl::ErrnoToStatus(errno, "configure a socket");
  }
  return absl::OkStatus();
}

int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// The time runs from the first wait: most calls never need to know it.
class Patience {
 public:
  explicit Patience(absl::Duration timeout) : timeout_(timeout) {}
  // Something has moved.
  void Renew() { end_ = 0; }

  // OK when one of the events came, or the socket is broken: the next call
  // tells.
  absl::Status Wait(int fd, short events, absl::string_view doing) {
    if (end_ == 0 && timeout_ != absl::InfiniteDuration()) {
      end_ = NowNanos() + absl::ToInt64Nanoseconds(timeout_);
    }
    while (true) {
      int milliseconds = -1;
      if (end_ != 0) {
        const int64_t left = end_ - NowNanos();
        if (left <= 0) {
          return absl::DeadlineExceededError(absl::StrCat(
              doing, " took longer than ", absl::FormatDuration(timeout_)));
        }
        milliseconds = static_cast<int>(
            std::min<int64_t>(left / 1000000 + 1, 1000 * 3600));
      }
      pollfd poll_fd = {fd, events, 0};
      const int n = poll(&poll_fd, 1, milliseconds);
      if (n > 0) return absl::OkStatus();
      if (n < 0 && errno != EINTR)
        return elasticdl::ErrnoToStatus(errno, "poll");
    }
  }

 private:
  const absl::Duration timeout_;
  int64_t end_ = 0;
};

bool IsGone(int error) {
  return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT ||
         error == ECONNABORTED || error == ENOTCONN || error == EHOSTUNREACH;
}

absl::Status Broken(int error, absl::string_view doing) {
  if (IsGone(error)) {
    return absl::UnavailableError(absl::StrCat(
        doing, ": ",
        elasticdl::ErrnoToStatus(error, "the other end is gone").message()));
  }
  return elasticdl::ErrnoToStatus(error, doing);
}

}  // namespace

absl::StatusOr<Address> Address::Parse(absl::string_view text) {
  Address address;
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 ||
      port > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not HOST:PORT"));
  }
  absl::string_view host = text.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ":")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': an IPv6 address stands in brackets"));
  }
  address.host = std::string(host);
  address.port = static_cast<uint16_t>(port);
  return address;
}

std::string Address::ToString() const {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::StatusOr<Socket> Socket::Connect(const Address& address,
                                       absl::Duration timeout) {
  ELASTICDL_ASSIGN_OR_RETURN(const AddressList list, Lookup(address, 0));
  int left = 0;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) ++left;
  const std::string what = absl::StrCat("connect to ", address.ToString());
  // Each address has its share of the time: the first may be one that nobody
  // answers at.
  const absl::Duration share = timeout / std::max(left, 1);
  absl::Status last;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    if (!fd.valid() || connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) {
      error = errno;
    }
    if (error == EINPROGRESS) {
      last = Patience(share).Wait(fd.get(), POLLOUT, what);
      if (!last.ok()) continue;
      socklen_t size = sizeof(error);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      ELASTICDL_RETURN_IF_ERROR(Configure(fd.get()));
      return Socket(std::move(fd));
    }
    last =
        absl::UnavailableError(elasticdl::ErrnoToStatus(error, what).message());
  }
  return last;
}

absl::Status Socket::Read(void* data, size_t size, absl::Duration timeout) {
  auto* to = static_cast<char*>(data);
  Patience patience(timeout);
  while (size > 0) {
    const ssize_t n = recv(fd_.get(), to, size, 0);
    if (n > 0) {
      patience.Renew();
      to += n;
      size -= static_cast<size_t>(n);
      continue;
    }
    if (n == 0) return absl::UnavailableError("the other end has closed");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return Broken(errno, "receive");
    ELASTICDL_RETURN_IF_ERROR(patience.Wait(fd_.get(), POLLIN, "receive"));
  }
  return absl::OkStatus();
}

absl::Status Socket::ReadBy(void* data, size_t size, absl::Time deadline) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    // Of a stranger, each byte would otherwise win as much time as the first.
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("receive: it took too long");
    }
    const ssize_t n = recv(fd_.get(), to, size, 0);
    if (n > 0) {
      to += n;
      size -= static_cast<size_t>(n);
      continue;
    }
    if (n == 0) return absl::UnavailableError("the other end has closed");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return Broken(errno, "receive");
    ELASTICDL_RETURN_IF_ERROR(
        Patience(left).Wait(fd_.get(), POLLIN, "receive"));
  }
  return absl::OkStatus();
}

absl::Status Socket::WaitReadable() {
  return Patience(absl::InfiniteDuration())
      .Wait(fd_.get(), POLLIN, "wait for a request");
}

bool Socket::IsReadable() const {
  pollfd poll_fd = {fd_.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

absl::Status Socket::Write(std::vector<iovec> parts, absl::Duration timeout) {
  Patience patience(timeout);
  size_t next = 0;
  while (next < parts.size()) {
    if (parts[next].iov_len == 0) {
      ++next;
      continue;
    }
    msghdr message = {};
    message.msg_iov = &parts[next];
    // As many as the kernel takes at once.
    message.msg_iovlen = std::min<size_t>(parts.size() - next, 1024);
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      ELASTICDL_RETURN_IF_ERROR(patience.Wait(fd_.get(), POLLOUT, "send"));
      continue;
    }
    if (n < 0) return Broken(errno, "send");
    patience.Renew();
    auto sent = static_cast<size_t>(n);
    while (next < parts.size() && sent >= parts[next].iov_len) {
      sent -= parts[next++].iov_len;
    }
    if (next < parts.size()) {
      parts[next].iov_base = static_cast<char*>(parts[next].iov_base) + sent;
      parts[next].iov_len -= sent;
    }
  }
  return absl::OkStatus();
}

absl::Status Socket::Write(absl::string_view data, absl::Duration timeout) {
  return Write({{const_cast<char*>(data.data()), data.size()}}, timeout);
}

void Socket::ShutDown() {
  if (fd_.valid()) shutdown(fd_.get(), SHUT_RDWR);
}

absl::StatusOr<Listener> Listener::Open(const Address& address) {
  ELASTICDL_ASSIGN_OR_RETURN(const AddressList list,
                             Lookup(address, AI_PASSIVE));
  int error = 0;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Listener listener;
    listener.fd_ =
        Fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int fd = listener.fd_.get();
    const int on = 1;
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    if (fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, a->ai_addr, a->ai_addrlen) != 0 ||
        listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
      error = errno;
      continue;
    }
    listener.port_ =
        ntohs(own.ss_family == AF_INET6
                  ? reinterpret_cast<const sockaddr_in6*>(&own)->sin6_port
                  : reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
    return listener;
  }
  return elasticdl::ErrnoToStatus(
      error, absl::StrCat("listen on ", address.ToString()));
}

absl::StatusOr<Socket> Listener::Accept() {
  while (true) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      ELASTICDL_RETURN_IF_ERROR(Configure(fd.get()));
      return Socket(std::move(fd));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      ELASTICDL_RETURN_IF_ERROR(
          Patience(absl::InfiniteDuration()).Wait(fd_.get(), POLLIN, "accept"));
      continue;
    }
    switch (errno) {
      // shutdown() of a listening socket.
      case EINVAL:
        return absl::CancelledError("shut down");
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        return absl::ResourceExhaustedError(
            elasticdl::ErrnoToStatus(errno, "accept").message());
      case EBADF:
      case ENOTSOCK:
      case EFAULT:
        return elasticdl::ErrnoToStatus(errno, "accept");
      default:
        // Of that connection alone.
        continue;
    }
  }
}

void Listener::ShutDown() { shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace elasticdl::net
