// Creates a job's objects on a cluster: all of them or none.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::cli {

// Gets a sentence for the user.
using Say = std::function<void(const std::string& words)>;

// May a job with that name be submitted? ALREADY_EXISTS as in SubmitJob.
// Changes nothing.
absl::Status CheckName(kube::Client& client, const std::string& job_name);

// Creates Secret, Service and master pod, makes the pod the owner of the other
// two, and returns it as created. Removes the objects of an ended job with the
// same name first. ALREADY_EXISTS: such a job is running or being submitted.
// After an error nothing of the new job is left.
absl::StatusOr<kube::Json> SubmitJob(kube::Client& client,
                                     const std::string& job_name,
                                     const kube::Json& secret,
                                     const cluster::JobObjects& objects,
                                     const Say& say);

// Removes all objects of a job and waits until its pods are gone, even if they
// are running.
absl::Status RemoveJob(kube::Client& client, const std::string& job_name);

}  // namespace elasticdl::cli
