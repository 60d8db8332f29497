// One HTTP request over a plain connection: all that the client needs of HTTP.
// An HTTP library would bring in TLS and double the time that the client needs
// to start.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace elasticdl::cli {

struct HttpReply {
  int code = 0;
  std::string body;
};

// Sends `method` (GET, POST, without a body) for `path` to `address`
// (host:port) with the token as bearer, and reads the answer to its end.
// UNAVAILABLE when nobody answers, DEADLINE_EXCEEDED, DATA_LOSS when the answer
// is not HTTP or is cut short.
absl::StatusOr<HttpReply> SendHttp(const std::string& address,
                                   const std::string& method,
                                   const std::string& path,
                                   const std::string& token,
                                   absl::Duration timeout);

// The answer as it came over the connection. Pure.
absl::StatusOr<HttpReply> ParseHttpReply(const std::string& text);

}  // namespace elasticdl::cli
