// The cluster that a command is meant for.
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
  // For people: the server and where it is written down.
  std::string server;
  std::string origin;
};

// From the process's environment, as kubectl does it. `name_space` "" = the
// kubeconfig's. Nothing is sent yet.
absl::StatusOr<ClusterConnection> ConnectCluster(
    const std::string& name_space, bool force_use_kube_config_file);

// NOT_FOUND when the client's namespace is not there; a list of its pods is
// then merely empty. OK when that cannot be known for want of rights.
absl::Status CheckNamespace(kube::Client& client);

// What the client did, as a person would ask for it, with help: which right is
// missing and who grants it, which server does not answer. OK stays OK.
absl::Status ExplainClusterError(const absl::Status& status,
                                 const ClusterConnection& cluster);

}  // namespace elasticdl::cli
