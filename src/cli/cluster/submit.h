// Creating a job's objects on a cluster, whole or not at all.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::cli {

// Receives a sentence for the user.
using Say = std::function<void(const std::string& words)>;

// May a job of that name be submitted? ALREADY_EXISTS as of SubmitJob; nothing
// is changed.
absl::Status CheckName(kube::Client& client, const std::string& job_name);

// Creates Secret, Service and master pod (the pod as created is returned) and
// makes the first two belong to the pod. What an ended job of that name left is
// removed first. ALREADY_EXISTS: one is running, or somebody is submitting it
// now. On any failure nothing is left of what was made.
absl::StatusOr<kube::Json> SubmitJob(kube::Client& client,
                                     const std::string& job_name,
                                     const kube::Json& secret,
                                     const cluster::JobObjects& objects,
                                     const Say& say);

// Removes all objects of a job and waits until its pods are gone, whatever they
// are doing.
absl::Status RemoveJob(kube::Client& client, const std::string& job_name);

}  // namespace elasticdl::cli
