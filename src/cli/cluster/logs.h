// The logs of a job's pods on a cluster.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "elasticdl/kube/client.h"
#include "job_handle.h"

namespace elasticdl::cli {

// Writes the logs that are asked for to standard output; several pods with a
// heading whenever another one's lines follow. Follows pods that come later,
// too, until the master (or, asked for some others, the last of them) has
// ended. NOT_FOUND names the pods that there are.
absl::Status PrintClusterLogs(kube::Client& client, const std::string& job_name,
                              const LogRequest& request);

}  // namespace elasticdl::cli
