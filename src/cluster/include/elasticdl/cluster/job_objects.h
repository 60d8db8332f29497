// The Kubernetes objects of a job, from plain options: what docs/design/
// 0004-kubernetes.md says, as JSON. Pure: nothing here talks to a cluster.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::cluster {

using Json = nlohmann::json;

// Ports of the master, in its pod and in its Service.
inline constexpr int kRpcPort = 50001;
inline constexpr int kHttpPort = 8080;
// Port of a parameter server, in its pod.
inline constexpr int kPsPort = 2222;
// Where pods find the job's Secret, and where the master and the parameter
// servers keep their state.
inline constexpr char kSecretDir[] = "/etc/elasticdl/job";
inline constexpr char kStateDir[] = "/var/lib/elasticdl";
inline constexpr char kPsLogDir[] = "/var/lib/elasticdl/ps";
// Keys of the Secret.
inline constexpr char kTokenKey[] = "token";
inline constexpr char kWorkerPodKey[] = "worker-pod.json";
inline constexpr char kPsPodKey[] = "ps-pod.json";
inline constexpr char kPopulateEnvNamesKey[] = "populate_env_names";
// Annotations by which the master tells how the job ended.
inline constexpr char kOutcomeAnnotation[] = "elasticdl/outcome";
inline constexpr char kMessageAnnotation[] = "elasticdl/message";
inline constexpr char kExitCodeAnnotation[] = "elasticdl/exit-code";
// Labels that are looked for; all objects of a job have the first one.
inline constexpr char kJobLabel[] = "elasticdl-job-name";
inline constexpr char kTypeLabel[] = "elasticdl-replica-type";
inline constexpr char kIndexLabel[] = "elasticdl-replica-index";

// The labels of all objects of a job.
Json JobLabels(const std::string& job_name);

// elasticdl-master-<job>: the pod and its Service.
std::string MasterName(const std::string& job_name);
// elasticdl-job-<job>.
std::string SecretName(const std::string& job_name);
// Label selectors: everything of a job, its master, all masters.
std::string JobSelector(const std::string& job_name);
std::string MasterSelector(const std::string& job_name);
std::string AllMastersSelector();

// One mount of a claim or of a path of the node (one of the two is set).
struct Volume {
  std::string claim_name;
  std::string host_path;
  // Kind of the host path ("Directory", …); "" = not checked.
  std::string type;
  std::string mount_path;
  std::string sub_path;
};

// What differs between master, workers and parameter servers.
struct PodOptions {
  std::string image;
  // Resource name → quantity. An empty limit is the request.
  std::map<std::string, std::string> request;
  std::map<std::string, std::string> limit;
  // "" = the cluster's default.
  std::string priority_class;
  std::string restart_policy = "Never";
  std::vector<std::string> command;
  std::vector<std::string> args;
};

struct JobOptions {
  std::string job_name;
  std::string namespace_name;
  // The job's secret.
  std::string token;
  PodOptions master;
  // The priority class of workers is the pod manager's, one by one.
  PodOptions worker;
  PodOptions ps;
  std::string image_pull_policy = "Always";
  std::vector<Volume> volumes;
  std::vector<std::pair<std::string, std::string>> envs;
  // Regular expression of the master's variables that workers get too.
  std::string populate_env_names;
};

// All but the Secret, which holds two of them: first --cluster_spec has its
// say.
struct JobObjects {
  Json service;
  Json master_pod;
  // Complete but for what the master fills in: name, index, owner, priority,
  // more arguments.
  Json worker_pod;
  Json ps_pod;
};

// INVALID_ARGUMENT: something needed is empty, or two volumes have one mount
// path.
absl::StatusOr<JobObjects> MakeJobObjects(const JobOptions& options);

// The Secret with token and templates.
Json MakeSecret(const JobOptions& options, const JobObjects& objects);

// A merge patch that makes an object belong to `pod` (as the server returned
// it): deleting the pod removes the object.
Json OwnerPatch(const Json& pod);

// Sets a variable of a container, over one of the same name. `variable` is an
// EnvVar ({"name": …}).
void SetEnv(const Json& variable, Json* container);

}  // namespace elasticdl::cluster
