// Checks of a job on a cluster before anything is built, pushed or created.
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

// May this user start and watch jobs in the client's namespace? The message
// says who can grant it.
absl::Status CheckOwnRights(kube::Client& client);

// Asks the cluster and changes nothing: does the namespace exist, may the
// client create a job and the master its pods, is the name free, do the claims
// exist, and would the server accept Secret, Service, master, workers and
// parameter servers (quotas, limits, priority classes, admission)? Returns the
// first problem, with advice if there is any. Questions that the client may not
// ask are skipped.
absl::Status CheckSubmission(kube::Client& client, const SubmissionPlan& plan);

}  // namespace elasticdl::cli
