#include "local/http.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cli {
namespace {

// More than any response of the status page.
constexpr size_t kMaxReplyBytes = 64 << 20;

// Waits until `fd` is ready for `events`.
absl::Status Await(int fd, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no answer in time");
    }
    pollfd poll_fd = {fd, events, 0};
    const int n = poll(&poll_fd, 1,
                       static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
  }
}

absl::Status ConnectTo(int fd, const addrinfo& target, absl::Time deadline) {
  if (connect(fd, target.ai_addr, target.ai_addrlen) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINPROGRESS) return ErrnoToStatus(errno, "connect");
  ELASTICDL_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : ErrnoToStatus(error, "connect");
}

absl::StatusOr<Fd> Connect(const std::string& address, absl::Time deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError("no port in the address");
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), address.substr(colon + 1).c_str(),
                  &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  absl::Status status = absl::UnavailableError("the host has no address");
  Fd fd;
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    fd.Reset(
        socket(next->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    status = fd.valid() ? ConnectTo(fd.get(), *next, deadline)
                        : ErrnoToStatus(errno, "socket");
    if (status.ok()) break;
  }
  freeaddrinfo(found);
  if (!status.ok()) return status;
  return fd;
}

absl::Status SendAll(int fd, absl::string_view data, absl::Time deadline) {
  while (!data.empty()) {
    ELASTICDL_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline));
    const ssize_t n = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) return ErrnoToStatus(errno, "send");
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveAll(int fd, absl::Time deadline) {
  std::string text;
  char buffer[16384];
  while (text.size() < kMaxReplyBytes) {
    ELASTICDL_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) return ErrnoToStatus(errno, "receive");
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
  return absl::DataLossError("the answer is too long");
}

}  // namespace

absl::StatusOr<HttpReply> ParseHttpReply(const std::string& text) {
  const size_t end = text.find("\r\n\r\n");
  if (!absl::StartsWith(text, "HTTP/1.") || end == std::string::npos) {
    return absl::DataLossError("the answer is not HTTP");
  }
  HttpReply reply;
  reply.body = text.substr(end + 4);
  const std::vector<std::string> lines =
      absl::StrSplit(text.substr(0, end), "\r\n");
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &reply.code)) {
    return absl::DataLossError("the answer has no status code");
  }
  for (const std::string& line : lines) {
    absl::string_view value = line;
    size_t length = 0;
    if (!absl::StartsWithIgnoreCase(line, "content-length:")) continue;
    value.remove_prefix(line.find(':') + 1);
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(value), &length) ||
        reply.body.size() < length) {
      return absl::DataLossError("the answer is cut short");
    }
    reply.body.resize(length);
  }
  return reply;
}

absl::StatusOr<HttpReply> SendHttp(const std::string& address,
                                   const std::string& method,
                                   const std::string& path,
                                   const std::string& token,
                                   absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  ELASTICDL_ASSIGN_OR_RETURN(const Fd fd, Connect(address, deadline));
  ELASTICDL_RETURN_IF_ERROR(SendAll(
      fd.get(),
      absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", address,
                   "\r\nAuthorization: Bearer ", token,
                   "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
      deadline));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text,
                             ReceiveAll(fd.get(), deadline));
  return ParseHttpReply(text);
}

}  // namespace elasticdl::cli
