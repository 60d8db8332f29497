// --cluster_spec FILE: a patch in YAML or JSON, or Python as in the tutorials
// of the Python ElasticDL.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cli {

// Applies the file to the objects, by its name: *.py runs its
// `cluster.with_pod` on each pod and `cluster.with_service` on the Service,
// with the first python3 in the PATH of `environment` that has the package
// kubernetes (FAILED_PRECONDITION with advice when none has); anything
// else holds the keys of --cluster_spec_json. INVALID_ARGUMENT, NOT_FOUND name
// the file.
absl::Status ApplyClusterSpecFile(const std::string& path,
                                  const std::vector<std::string>& environment,
                                  cluster::JobObjects* objects);

}  // namespace elasticdl::cli
