// Pods of a Kubernetes cluster as JSON: made from a template, read as events.
// Pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/cluster/replica_pod.h"
#include "elasticdl/kube/client.h"
#include "pod_backend.h"

namespace elasticdl::master {

using KubeJob = cluster::ReplicaJob;

// cluster::MakeReplicaPod for a PodSpec of the pod manager.
absl::StatusOr<kube::Json> MakePod(const kube::Json& pod_template,
                                   const PodSpec& spec, const KubeJob& job);

// Adds to an error about missing rights the command that grants them to the
// master. Other errors, and OK, are not changed.
absl::Status ExplainRefusal(const absl::Status& status);

// The event for the state of a pod (docs/design/0004, "How pods end"). Accepts
// any JSON.
PodEvent DescribePod(const kube::Json& pod);

// The same for a pod that was deleted, from its last state.
PodEvent DescribeGonePod(const kube::Json& pod);

}  // namespace elasticdl::master
