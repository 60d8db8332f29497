// A job on a cluster, reached through the API server: no port of the job is
// open to the outside.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/connection.h"
#include "job_handle.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {

// The job called `name`; with an empty name the only one that is running in the
// namespace. NOT_FOUND and FAILED_PRECONDITION name the jobs to choose from.
absl::StatusOr<std::unique_ptr<JobHandle>> OpenClusterJob(
    ClusterConnection cluster, const std::string& name);

// All jobs of the namespace, by name.
absl::StatusOr<std::vector<JobSummary>> ListClusterJobs(kube::Client& client);

}  // namespace elasticdl::cli
