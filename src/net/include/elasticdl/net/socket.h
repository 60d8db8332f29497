// Stream sockets whose every call has a deadline and ends when the socket is
// shut down by another thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"

namespace elasticdl::net {

// HOST:PORT; an IPv6 address stands in brackets.
struct Address {
  std::string host;
  uint16_t port = 0;

  // INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<Address> Parse(absl::string_view text);
  std::string ToString() const;
};

// A connection. Thread-compatible, except ShutDown. A timeout is how long no
// byte may move. Errors: UNAVAILABLE when the other end is gone or the socket
// was shut down, DEADLINE_EXCEEDED.
class Socket {
 public:
  Socket() = default;
  explicit Socket(Fd fd) : fd_(std::move(fd)) {}
  // Tries all addresses of the name. Looking it up has the resolver's own
  // limit.
  static absl::StatusOr<Socket> Connect(const Address& address,
                                        absl::Duration timeout);

  // All of it, or an error.
  absl::Status Read(void* data, size_t size, absl::Duration timeout);
  // The same, but all of it must be there by then.
  absl::Status ReadBy(void* data, size_t size, absl::Time deadline);
  // Waits for the first byte; there is no deadline before it.
  absl::Status WaitReadable();
  // There are bytes to read, or the other end is gone; does not wait.
  bool IsReadable() const;
  absl::Status Write(std::vector<iovec> parts, absl::Duration timeout);
  absl::Status Write(absl::string_view data, absl::Duration timeout);

  // Both ends see the end of the stream; calls under way return. Any thread,
  // while the socket exists.
  void ShutDown();
  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// Thread-compatible, except ShutDown.
class Listener {
 public:
  Listener() = default;
  // Port 0: a free one is chosen.
  static absl::StatusOr<Listener> Open(const Address& address);
  // CANCELLED after ShutDown; RESOURCE_EXHAUSTED when this process or machine
  // has no room for a socket now.
  absl::StatusOr<Socket> Accept();
  void ShutDown();
  uint16_t port() const { return port_; }

 private:
  Fd fd_;
  uint16_t port_ = 0;
};

}  // namespace elasticdl::net
