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

// cluster::MakeReplicaPod for what the pod manager asks for.
absl::StatusOr<kube::Json> MakePod(const kube::Json& pod_template,
                                   const PodSpec& spec, const KubeJob& job);

// A refusal of the server for want of rights, with the command that grants the
// master what it needs. Other errors, and OK, stay as they are.
absl::Status ExplainRefusal(const absl::Status& status);

// What the state of a pod means (docs/design/0004, "How pods end"). Total: any
// JSON gives an event.
PodEvent DescribePod(const kube::Json& pod);

// The same for a pod that does not exist any more, by its last state.
PodEvent DescribeGonePod(const kube::Json& pod);

}  // namespace elasticdl::master
