// Hands over to `elasticdl-cluster`, the program that talks to Kubernetes and
// to Docker. Its HTTP library (libcurl with TLS) takes longer to load than all
// the rest of the client, so `elasticdl` itself does not link it
// (docs/kubernetes.md).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// Replaces this process by `elasticdl-cluster COMMAND ARGS…`, which is
// installed beside this program. Returns only when that fails: NOT_FOUND, ….
absl::Status ExecCluster(const std::string& command,
                         const std::vector<std::string>& args);

// Is a cluster configured: $KUBECONFIG, ~/.kube/config, or are we in a pod?
bool ClusterIsConfigured();

}  // namespace elasticdl::cli
