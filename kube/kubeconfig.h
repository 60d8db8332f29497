// kubeconfig files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/kube/cluster_config.h"

namespace elasticdl::kube {

// Cluster, user and namespace of a context (empty = the current one). The files
// are merged: of two entries with the same name the first one is used. Missing
// files are skipped. NOT_FOUND when all are missing; INVALID_ARGUMENT names the
// file and the entry.
absl::StatusOr<ClusterConfig> LoadKubeconfig(
    const std::vector<std::string>& files, const std::string& context);

}  // namespace elasticdl::kube
