// The interface between the Kubernetes client and the HTTP library below it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/cancellation.h"

namespace elasticdl::kube {

using elasticdl::Cancellation;

struct Request {
  std::string method = "GET";
  // Segments of the path, unescaped: the transport percent-encodes each.
  std::vector<std::string> path;
  // Unescaped.
  std::vector<std::pair<std::string, std::string>> query;
  std::string content_type = "application/json";
  std::string body;
};

struct Response {
  int code = 0;
  std::string body;
};

// Thread-safe. HTTP to one API server: TLS, credentials, reused connections.
class Transport {
 public:
  virtual ~Transport() = default;

  // One request and its whole response, whatever its code. UNAVAILABLE when
  // there was no response, DEADLINE_EXCEEDED after `timeout`, CANCELLED
  // (`cancel` may be null). FAILED_PRECONDITION when the server's certificate
  // is not trusted. UNAUTHENTICATED when there are no credentials (a login
  // program fails, a token cannot be read); fetching them takes at most a
  // minute, which `timeout` does not include. After a 401 it tries once more
  // with new credentials.
  virtual absl::StatusOr<Response> Call(const Request& request,
                                        absl::Duration timeout,
                                        const Cancellation* cancel) = 0;

  // One request whose response arrives piece by piece. `chunk` is called on
  // this thread with each piece; false ends the call (CANCELLED). A body whose
  // code is not 2xx is returned instead. `idle_timeout`: the longest silence;
  // it may be infinite, because `cancel` can end the call.
  using ChunkSink = std::function<bool(absl::string_view bytes)>;
  virtual absl::StatusOr<Response> Stream(const Request& request,
                                          absl::Duration idle_timeout,
                                          const Cancellation* cancel,
                                          const ChunkSink& chunk) = 0;
};

}  // namespace elasticdl::kube
