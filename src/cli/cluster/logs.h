// The logs of a job's pods on a cluster.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "elasticdl/kube/client.h"
#include "job_handle.h"

namespace elasticdl::cli {

// Prints the requested logs; with several pods, a heading whenever the pod
// changes. Includes pods that start later, until the master (or the last of the
// requested pods) has ended. NOT_FOUND names the existing pods.
absl::Status PrintClusterLogs(kube::Client& client, const std::string& job_name,
                              const LogRequest& request);

}  // namespace elasticdl::cli
