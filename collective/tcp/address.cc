#include "tcp/address.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/offer.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// A kernel answers while its host is reachable, whatever the process does: a
// host that is silent for this long is cut off. A lost packet is repeated five
// times in this time.
constexpr absl::Duration kMostSilence = absl::Seconds(10);

// Of what a local peer sends, so much may wait: more than both of them move in
// the time of a slice, so that neither waits for the other.
constexpr int kLargeBuffer = 4 << 20;

int LargestBuffer(int option) {
  const auto text =
      ReadFile(option == SO_SNDBUF ? "/proc/sys/net/core/wmem_max"
                                   : "/proc/sys/net/core/rmem_max");
  int limit = 0;
  const bool known =
      text.ok() && absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &limit);
  return known ? limit : 0;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Lookup(const std::string& host,
                                   const std::string& port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("look up address ", host, ": ", gai_strerror(error)));
  }
  return AddressList(list, freeaddrinfo);
}

absl::StatusOr<TcpAddress> OwnAddress(int socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getsockname(socket, address, &size) != 0 ||
      getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::InternalError("cannot tell the address of a socket");
  }
  return TcpAddress{host, static_cast<uint16_t>(std::stoi(port))};
}

}  // namespace

absl::StatusOr<TcpListener> Listen(const std::string& host) {
  ELASTICDL_ASSIGN_OR_RETURN(const AddressList list, Lookup(host, "0", 0));
  int error = 0;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() || bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        listen(fd.get(), SOMAXCONN) != 0) {
      error = errno;
      continue;
    }
    ELASTICDL_ASSIGN_OR_RETURN(TcpAddress address, OwnAddress(fd.get()));
    return TcpListener{std::move(fd), std::move(address)};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "listen on ", host, ": ", ErrnoToStatus(error, "bind").message()));
}

absl::StatusOr<Fd> Dial(const TcpAddress& address) {
  ELASTICDL_ASSIGN_OR_RETURN(const AddressList list,
                             Lookup(address.host, absl::StrCat(address.port),
                                    AI_NUMERICHOST | AI_NUMERICSERV));
  const addrinfo& a = *list;
  Fd fd(socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoToStatus(errno, "make a socket");
  ELASTICDL_RETURN_IF_ERROR(Configure(fd.get()));
  if (connect(fd.get(), a.ai_addr, a.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return ErrnoToStatus(
        errno, absl::StrCat("connect to ", address.host, ":", address.port));
  }
  return fd;
}

absl::Status DialResult(int socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  return error == 0 ? absl::OkStatus() : ErrnoToStatus(error, "connect");
}

absl::Status Configure(int socket) {
  const auto set = [socket](int level, int option, int value) {
    return setsockopt(socket, level, option, &value, sizeof(value)) == 0;
  };
  const auto silence = static_cast<int>(absl::ToInt64Seconds(kMostSilence));
  if (fcntl(socket, F_SETFL, O_NONBLOCK) != 0 ||
      fcntl(socket, F_SETFD, FD_CLOEXEC) != 0 ||
      !set(IPPROTO_TCP, TCP_NODELAY, 1) || !set(SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set(IPPROTO_TCP, TCP_KEEPIDLE, silence / 2) ||
      !set(IPPROTO_TCP, TCP_KEEPINTVL, 1) ||
      // Applies to unacknowledged data and to keepalive probes.
      !set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * silence)) {
    return ErrnoToStatus(errno, "configure a socket");
  }
  return absl::OkStatus();
}

void SetLargeBuffers(int socket) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    int before = 0;
    socklen_t size = sizeof(before);
    // The kernel doubles what it is given, and gives no more than its limit.
    // Whoever sets a size does without the one that grows as needed, so a low
    // limit must not be chosen.
    const int wanted = kLargeBuffer;
    const int limit = LargestBuffer(option);
    if (limit < wanted) continue;
    if (getsockopt(socket, SOL_SOCKET, option, &before, &size) == 0 &&
        before < 2 * wanted) {
      setsockopt(socket, SOL_SOCKET, option, &wanted, sizeof(wanted));
    }
  }
}

void AppendAddress(const TcpAddress& address, std::string& out) {
  AppendText(address.host, out);
  AppendRaw(address.port, out);
}

bool TakeAddress(absl::string_view& in, TcpAddress& address) {
  return TakeText(in, address.host) && TakeRaw(in, address.port);
}

absl::StatusOr<std::vector<TcpAddress>> OpenAddressOffers(
    const WorldSpec& world, absl::string_view kind,
    const std::vector<int>& peers, const std::vector<std::string>& offers) {
  ELASTICDL_RETURN_IF_ERROR(CheckNumberOfOffers(world, offers));
  std::vector<TcpAddress> addresses(offers.size());
  for (const int rank : peers) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string payload,
                               OpenOffer(world, rank, kind, offers[rank]));
    absl::string_view rest = payload;
    if (!TakeAddress(rest, addresses[rank]) || !rest.empty()) {
      return DamagedOffer(rank);
    }
  }
  return addresses;
}

}  // namespace elasticdl::collective
