// What the transports have in common: how to reach the server, credentials, and
// one more try with new ones after a 401.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "credentials.h"
#include "elasticdl/http/client.h"
#include "elasticdl/kube/cluster_config.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// Thread-safe.
class HttpTransport : public Transport {
 public:
  explicit HttpTransport(const ClusterConfig& config) : credentials_(config) {}

  absl::StatusOr<Response> Call(const Request& request, absl::Duration timeout,
                                const Cancellation* cancel) final;
  absl::StatusOr<Response> Stream(const Request& request,
                                  absl::Duration idle_timeout,
                                  const Cancellation* cancel,
                                  const ChunkSink& chunk) final;

 protected:
  // One request over the wire. `sink` is null for a call.
  virtual absl::StatusOr<Response> Once(const Request& request,
                                        const Identity& identity,
                                        const http::Limits& limits,
                                        const Cancellation* cancel,
                                        const ChunkSink* sink) = 0;

 private:
  absl::StatusOr<Response> Run(const Request& request,
                               const http::Limits& limits,
                               const Cancellation* cancel,
                               const ChunkSink* sink);

  Credentials credentials_;
};

// How to reach the API server of a ClusterConfig.
struct ApiServer {
  http::Server http;
  // "https://host:port", for messages.
  std::string name;
  // The Host header if it differs from the host of http.base_url, else empty.
  std::string host_header;
};

// INVALID_ARGUMENT unless the server is http(s)://host[:port][/prefix] and
// certificates and keys look like ones.
absl::StatusOr<ApiServer> ApiServerOf(const ClusterConfig& config);

http::Login LoginOf(const Identity& identity);

}  // namespace elasticdl::kube
