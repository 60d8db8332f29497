// kubeconfig files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/kube/cluster_config.h"

namespace elasticdl::kube {

// Cluster, user and namespace of a context (empty = the current one) from the
// files together: of two entries with one name the first wins. Files that do
// not exist are left out. NOT_FOUND when none exists; INVALID_ARGUMENT names
// file and entry.
absl::StatusOr<ClusterConfig> LoadKubeconfig(
    const std::vector<std::string>& files, const std::string& context);

}  // namespace elasticdl::kube
