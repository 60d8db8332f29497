// The connection to the cluster of a command.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/cluster_config.h"

namespace elasticdl::cli {

struct ClusterConnection {
  std::unique_ptr<kube::Client> client;
  // For messages: the server, and the file that names it.
  std::string server;
  std::string origin;
};

// From the process's environment, as kubectl does it. `name_space` "" = the
// kubeconfig's. Nothing is sent yet.
absl::StatusOr<ClusterConnection> ConnectCluster(
    const std::string& name_space, bool force_use_kube_config_file);

// NOT_FOUND if the client's namespace does not exist; a list of its pods would
// just be empty. OK if the client has no right to ask.
absl::Status CheckNamespace(kube::Client& client);

// Adds to an error what was attempted and advice: which right is missing and
// who can grant it, or which server does not answer. OK stays OK.
absl::Status ExplainClusterError(const absl::Status& status,
                                 const ClusterConnection& cluster);

}  // namespace elasticdl::cli
