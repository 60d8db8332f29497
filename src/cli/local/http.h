// One HTTP request over a plain connection: the client needs no more. An HTTP
// library would bring TLS along and double the client's start-up time; those in
// Debian also limit each read, not the request as a whole.
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
// (host:port) with the token as bearer, and reads the whole response.
// UNAVAILABLE if nobody answers, DEADLINE_EXCEEDED, DATA_LOSS if the response
// is not HTTP or is incomplete.
absl::StatusOr<HttpReply> SendHttp(const std::string& address,
                                   const std::string& method,
                                   const std::string& path,
                                   const std::string& token,
                                   absl::Duration timeout);

// Parses the bytes of a response. Pure.
absl::StatusOr<HttpReply> ParseHttpReply(const std::string& text);

}  // namespace elasticdl::cli
