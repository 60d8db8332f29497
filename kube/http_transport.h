// What the transports have in common: credentials, and one more try with new
// ones after a 401.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "credentials.h"
#include "elasticdl/kube/cluster_config.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// How long a transfer may take.
struct TransferLimits {
  absl::Duration total = absl::InfiniteDuration();
  // Without a byte.
  absl::Duration silence = absl::InfiniteDuration();
};

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
                                        const TransferLimits& limits,
                                        const Cancellation* cancel,
                                        const ChunkSink* sink) = 0;

 private:
  absl::StatusOr<Response> Run(const Request& request,
                               const TransferLimits& limits,
                               const Cancellation* cancel,
                               const ChunkSink* sink);

  Credentials credentials_;
};

// INVALID_ARGUMENT for certificates and keys that can be none.
absl::Status CheckConfig(const ClusterConfig& config);

}  // namespace elasticdl::kube
