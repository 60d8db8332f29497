// Where the engine listens, and why it may not be reached.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/docker/engine.h"

namespace elasticdl::docker {

struct EngineAddress {
  // As the user wrote it: "unix:///var/run/docker.sock".
  std::string name;
  // Path of the socket; "" = it is reached by network.
  std::string socket;
  // What precedes the path of a request: "http://localhost".
  std::string base_url;
  // Files for TLS; empty without it.
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
};

// INVALID_ARGUMENT: the host is none that can be spoken to.
absl::StatusOr<EngineAddress> ResolveEngine(const EngineOptions& options);

// Connects to a unix socket once, to say exactly what is wrong. UNAVAILABLE: no
// engine listens there; PERMISSION_DENIED: this user may not use it.
absl::Status CheckSocket(const EngineAddress& address);

}  // namespace elasticdl::docker
