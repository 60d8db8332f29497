// --cluster_spec FILE: a patch in YAML or JSON, or Python as the tutorials of
// the Python ElasticDL have it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cli {

// Applies the file to the objects, by its name: *.py runs its
// `cluster.with_pod` on each pod and `cluster.with_service` on the Service,
// with python3 and the package kubernetes of the PATH in `environment`
// (FAILED_PRECONDITION when they are missing, with the ways out); anything else
// holds the keys of --cluster_spec_json. INVALID_ARGUMENT, NOT_FOUND name the
// file.
absl::Status ApplyClusterSpecFile(const std::string& path,
                                  const std::vector<std::string>& environment,
                                  cluster::JobObjects* objects);

}  // namespace elasticdl::cli
