// --cluster_spec_json and patch files: settings that a cluster requires for
// every pod and Service (labels, tolerations, …). Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cluster {

// Applies an object with these keys, each of them optional:
//
//   pod_spec         of all pods; then
//   master_pod_spec, worker_pod_spec, ps_pod_spec   of those
//   service_spec     any fields of a ServiceSpec, as a merge patch (RFC 7386);
//                    its `metadata` is one for the Service's metadata
//
// In a pod spec:
//
//   labels, annotations        added to the pod's
//   env                        [{"name": …, "value": …}] or {NAME: VALUE}
//   container                  a merge patch of the container; its lists
//                              volumeMounts, env, envFrom, ports are added
//   metadata, spec             merge patches of those parts of the pod
//   anything else              a field of PodSpec (affinity, nodeSelector,
//                              serviceAccountName, …), as a merge patch;
//                              tolerations, volumes, imagePullSecrets,
//                              initContainers, hostAliases are added to
//
// Field names may be spelt as in Python (node_selector, cluster_ip).
// INVALID_ARGUMENT names the key and what it should hold; the objects may then
// be half patched.
absl::Status ApplyClusterSpec(const Json& spec, JobObjects* objects);

// The same with field names as Kubernetes spells them: snake_case becomes
// camelCase, but for the keys of maps that users name (labels, selectors, …).
Json WithKubernetesKeys(const Json& value);

}  // namespace elasticdl::cluster
