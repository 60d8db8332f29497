#include "elasticdl/cluster/replica_pod.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cluster {
namespace {

Json& Object(Json& parent, const char* key) {
  Json& child = parent[key];
  if (!child.is_object()) child = Json::object();
  return child;
}

Json& Array(Json& parent, const char* key) {
  Json& child = parent[key];
  if (!child.is_array()) child = Json::array();
  return child;
}

bool HasText(const Json& object, const char* key, const std::string& text) {
  return object.is_object() && object.contains(key) && object[key] == text;
}

// The container named after the pod's type, or else the first.
Json& MainContainer(Json& pod, const std::string& type) {
  Json& containers = pod["spec"]["containers"];
  for (Json& container : containers) {
    if (HasText(container, "name", type)) return container;
  }
  return containers.front();
}

}  // namespace

std::string ReplicaSelector(const std::string& job_name) {
  return absl::StrCat(kJobLabel, "=", job_name, ",", kTypeLabel,
                      " in (worker,ps)");
}

bool IsReplicaOf(const ReplicaJob& job, const Json& pod) {
  if (job.owner_uid.empty()) return true;
  const Json::json_pointer where("/metadata/ownerReferences");
  if (!pod.contains(where) || !pod[where].is_array()) return false;
  const Json& owners = pod[where];
  return std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
    return HasText(owner, "uid", job.owner_uid);
  });
}

absl::Status CheckPodTemplate(const Json& pod_template) {
  if (!HasText(pod_template, "kind", "Pod")) {
    return absl::InvalidArgumentError(
        "the pod template is no object of kind Pod");
  }
  const Json::json_pointer where("/spec/containers");
  const Json containers =
      pod_template.contains(where) ? pod_template[where] : Json::array();
  const bool usable =
      containers.is_array() && !containers.empty() &&
      std::all_of(containers.begin(), containers.end(),
                  [](const Json& one) { return one.is_object(); });
  if (!usable) {
    return absl::InvalidArgumentError("the pod template has no containers");
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> MakeReplicaPod(const Json& pod_template,
                                    const Replica& replica,
                                    const ReplicaJob& job) {
  ELASTICDL_RETURN_IF_ERROR(CheckPodTemplate(pod_template));
  Json pod = pod_template;
  Json& metadata = Object(pod, "metadata");
  metadata["name"] = replica.name;
  Json& labels = Object(metadata, "labels");
  labels.update(JobLabels(job.name));
  labels[kTypeLabel] = replica.type;
  labels[kIndexLabel] = absl::StrCat(replica.id);
  if (!job.owner_uid.empty()) {
    // `controller`: a drain of the node takes it as a pod that comes back.
    Array(metadata, "ownerReferences")
        .push_back({{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"name", job.owner_name},
                    {"uid", job.owner_uid},
                    {"controller", true}});
  }
  if (!replica.priority.empty()) {
    pod["spec"]["priorityClassName"] = replica.priority;
  }
  Json& container = MainContainer(pod, replica.type);
  Json& args = Array(container, "args");
  args.push_back(absl::StrCat("--", replica.type, "_id=", replica.id));
  args.push_back(absl::StrCat("--master_addr=", job.master_address));
  for (const auto& [name, value] : replica.env) {
    SetEnv({{"name", name}, {"value", value}}, &container);
  }
  return pod;
}

}  // namespace elasticdl::cluster
