// Pods of a Kubernetes cluster as JSON: made from a template, read as events.
// Pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/kube/client.h"
#include "pod_backend.h"

namespace elasticdl::master {

// What all pods of a job have in common.
struct KubeJob {
  std::string name;
  // The master's pod; its end takes the job's pods along. Empty: nobody.
  std::string owner_name;
  std::string owner_uid;
  // host:port, for the pods.
  std::string master_address;
};

// Finds the pods that the master makes.
std::string PodSelector(const KubeJob& job);

// Is it one of this master's? Not when it belongs to another pod, such as the
// master of an earlier job of the same name.
bool IsPodOf(const KubeJob& job, const kube::Json& pod);

// OK when it is a pod with a container.
absl::Status CheckPodTemplate(const kube::Json& pod_template);

// The template with all that differs from pod to pod filled in: name, labels,
// owner, priority class, and the arguments that tell the container who it is
// and where its master is. What else the template has stays as it is.
absl::StatusOr<kube::Json> MakePod(const kube::Json& pod_template,
                                   const PodSpec& spec, const KubeJob& job);

// What the state of a pod means (docs/design/0004, "How pods end"). Total: any
// JSON gives an event.
PodEvent DescribePod(const kube::Json& pod);

// The same for a pod that does not exist any more, by its last state.
PodEvent DescribeGonePod(const kube::Json& pod);

}  // namespace elasticdl::master
