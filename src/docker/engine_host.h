// Where the engine listens, and why it cannot be reached.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/docker/engine.h"

namespace elasticdl::docker {

struct EngineAddress {
  // As the user wrote it: "unix:///var/run/docker.sock".
  std::string name;
  // Path of the Unix socket; "" = the engine is reached over the network.
  std::string socket;
  // What precedes the path of a request: "http://localhost".
  std::string base_url;
  // For TLS; empty without it.
  std::string ca_pem;
  std::string cert_pem;
  std::string key_pem;
};

// INVALID_ARGUMENT: the host has a form that is not supported.
absl::StatusOr<EngineAddress> ResolveEngine(const EngineOptions& options);

// Connects to a Unix socket once, to say exactly what is wrong. UNAVAILABLE: no
// engine listens there; PERMISSION_DENIED: this user may not use it.
absl::Status CheckSocket(const EngineAddress& address);

}  // namespace elasticdl::docker
