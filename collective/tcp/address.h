// Addresses and sockets of the TCP backend.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/file.h"

namespace elasticdl::collective {

// A numeric address, IPv4 or IPv6, and a port.
struct TcpAddress {
  std::string host;
  uint16_t port = 0;
};

// As part of an offer.
void AppendAddress(const TcpAddress& address, std::string& out);
// False if there are too few bytes.
bool TakeAddress(absl::string_view& in, TcpAddress& address);
// The addresses of `peers`, by rank, from offers that contain nothing else.
absl::StatusOr<std::vector<TcpAddress>> OpenAddressOffers(
    const WorldSpec& world, absl::string_view kind,
    const std::vector<int>& peers, const std::vector<std::string>& offers);

// A socket that listens on one address of this host, not on all, and its
// address.
struct TcpListener {
  Fd socket;
  TcpAddress address;
};
// `host` is a name or a number; a free port is chosen. INVALID_ARGUMENT when it
// is not an address of this host.
absl::StatusOr<TcpListener> Listen(const std::string& host);

// Begins to connect; the socket becomes writable when it succeeded or failed.
absl::StatusOr<Fd> Dial(const TcpAddress& address);
// OK when a socket of Dial is connected.
absl::Status DialResult(int socket);

// Non-blocking, no delay for small packets, closed on exec; breaks when the
// other host does not answer for 10 s.
absl::Status Configure(int socket);
// Much may wait in it, where the kernel allows that. For a peer on this host.
void SetLargeBuffers(int socket);

}  // namespace elasticdl::collective
