// What can be known about a job on a cluster before anything of it is built,
// pushed or created.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::cli {

struct SubmissionPlan {
  std::string job_name;
  kube::Json secret;
  cluster::JobObjects objects;
  // Priority classes that workers will get; "" = none.
  std::vector<std::string> worker_classes;
  bool has_servers = false;
};

// Asks the cluster, and changes nothing: is the namespace there, may the client
// make a job and the master its pods, is the name free, are the claims there,
// and would the server accept Secret, Service, master, workers and parameter
// servers (quotas, limits, priority classes, admission)? The first answer that
// is no, with what to do about it where that is known. Questions that the
// client may not ask are left out.
absl::Status CheckSubmission(kube::Client& client, const SubmissionPlan& plan);

}  // namespace elasticdl::cli
