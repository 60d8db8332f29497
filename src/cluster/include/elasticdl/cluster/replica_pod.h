// The pods that a master makes for its job, from the templates that the client
// left in the job's Secret (job_objects.h). Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cluster {

// What all pods of a job have in common.
struct ReplicaJob {
  std::string name;
  // The master's pod; its end takes the job's pods along. Empty: nobody.
  std::string owner_name;
  std::string owner_uid;
  // host:port, for the pods.
  std::string master_address;
};

// What differs from pod to pod.
struct Replica {
  std::string name;
  // "worker" or "ps".
  std::string type;
  int64_t id = 0;
  // Priority class; empty = the cluster's default.
  std::string priority;
  // Added to the container's, over those of the same name.
  std::vector<std::pair<std::string, std::string>> env;
};

// Finds the pods that the master of a job makes.
std::string ReplicaSelector(const std::string& job_name);

// Is it one of this job's? Not when it belongs to another pod, such as the
// master of an earlier job of the same name.
bool IsReplicaOf(const ReplicaJob& job, const Json& pod);

// OK when it is a pod with a container.
absl::Status CheckPodTemplate(const Json& pod_template);

// The template with name, labels, owner, priority class, and the arguments that
// tell the container who it is and where its master is. What else the template
// has stays as it is.
absl::StatusOr<Json> MakeReplicaPod(const Json& pod_template,
                                    const Replica& replica,
                                    const ReplicaJob& job);

}  // namespace elasticdl::cluster
