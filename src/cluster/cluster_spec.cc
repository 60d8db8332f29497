// Applies a cluster_spec to the objects of a job.
#include "elasticdl/cluster/cluster_spec.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cluster {
namespace {

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

bool IsOneOf(const std::string& text,
             std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text == word; });
}

// Below these, keys are names that users chose.
bool HoldsNames(const std::string& key) {
  return IsOneOf(key, {"labels", "annotations", "matchLabels", "nodeSelector",
                       "selector", "requests", "limits", "data", "stringData",
                       "sysctls", "options", "volumeAttributes", "overhead"});
}

// node_selector → nodeSelector, cluster_ip → clusterIP; a name without '_'
// stays.
std::string KubernetesKey(const std::string& key) {
  if (key == "external_i_ps" || key == "external_ips") return "externalIPs";
  if (key == "cluster_i_ps" || key == "cluster_ips") return "clusterIPs";
  std::string name;
  bool upper = false;
  for (const char c : key) {
    if (c == '_' && !name.empty()) {
      upper = true;
      continue;
    }
    name += upper ? absl::ascii_toupper(static_cast<unsigned char>(c)) : c;
    upper = false;
  }
  for (const char* word : {"Ip", "Pid", "Ipc"}) {
    if (!absl::EndsWith(name, word) || name == key) continue;
    std::string end = word;
    absl::AsciiStrToUpper(&end);
    name.replace(name.size() - end.size(), end.size(), end);
  }
  return name;
}

absl::Status MergeStrings(const std::string& where, const Json& value,
                          Json* target) {
  if (!value.is_object()) return Bad(where, ": expected an object of strings");
  for (const auto& [key, one] : value.items()) {
    if (!one.is_string() && !one.is_null()) {
      return Bad(where, ": '", key, "' must be a string, not ", JsonText(one));
    }
  }
  if (!target->is_object()) *target = Json::object();
  target->merge_patch(value);
  return absl::OkStatus();
}

absl::Status AddEnv(const std::string& where, const Json& value,
                    Json* container) {
  if (value.is_object()) {
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) {
        return Bad(where, ": '", name, "' must be a string, not ",
                   JsonText(text));
      }
      SetEnv({{"name", name}, {"value", text}}, container);
    }
    return absl::OkStatus();
  }
  if (!value.is_array()) {
    return Bad(where,
               ": expected [{\"name\": …, \"value\": …}] or {NAME: VALUE}");
  }
  for (const Json& variable : value) {
    if (!variable.is_object() || !variable.contains("name") ||
        !variable["name"].is_string()) {
      return Bad(where, ": ", JsonText(variable), " has no \"name\"");
    }
    SetEnv(variable, container);
  }
  return absl::OkStatus();
}

// Adds the elements of a list to one that may be there.
absl::Status Append(const std::string& where, const Json& value, Json* list) {
  if (!value.is_array()) return Bad(where, ": expected a list");
  if (!list->is_array()) *list = Json::array();
  list->insert(list->end(), value.begin(), value.end());
  return absl::OkStatus();
}

absl::Status PatchContainer(const std::string& where, const Json& value,
                            Json* container) {
  if (!value.is_object()) return Bad(where, ": expected an object");
  for (const auto& [key, part] : value.items()) {
    const std::string here = absl::StrCat(where, ".", key);
    if (key == "env") {
      ELASTICDL_RETURN_IF_ERROR(AddEnv(here, part, container));
    } else if (IsOneOf(key, {"volumeMounts", "envFrom", "ports"})) {
      ELASTICDL_RETURN_IF_ERROR(Append(here, part, &(*container)[key]));
    } else {
      container->merge_patch({{key, part}});
    }
  }
  return absl::OkStatus();
}

absl::Status PatchPodField(const std::string& where, const std::string& key,
                           const Json& value, Json* pod) {
  Json& spec = (*pod)["spec"];
  if (key == "labels" || key == "annotations") {
    return MergeStrings(where, value, &(*pod)["metadata"][key]);
  }
  if (key == "env") return AddEnv(where, value, &spec["containers"][0]);
  if (key == "container") {
    return PatchContainer(where, value, &spec["containers"][0]);
  }
  if (key == "containers") {
    return Bad(where, ": the container is ElasticDL's own; use \"container\" ",
               "to patch it");
  }
  if (key == "metadata" || key == "spec") {
    if (!value.is_object()) return Bad(where, ": expected an object");
    if (value.contains("containers")) {
      return PatchPodField(where, "containers", value, pod);
    }
    (*pod)[key].merge_patch(value);
    return absl::OkStatus();
  }
  if (IsOneOf(key, {"tolerations", "volumes", "imagePullSecrets",
                    "initContainers", "hostAliases"})) {
    return Append(where, value, &spec[key]);
  }
  spec.merge_patch({{key, value}});
  return absl::OkStatus();
}

absl::Status PatchPod(const std::string& name, const Json& part, Json* pod) {
  for (const auto& [key, value] : part.items()) {
    ELASTICDL_RETURN_IF_ERROR(
        PatchPodField(absl::StrCat(name, ".", key), key, value, pod));
  }
  return absl::OkStatus();
}

void PatchService(const Json& part, Json* service) {
  Json spec = part;
  if (spec.contains("metadata")) {
    (*service)["metadata"].merge_patch(spec["metadata"]);
    spec.erase("metadata");
  }
  (*service)["spec"].merge_patch(spec);
}

}  // namespace

Json WithKubernetesKeys(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& one : value) list.push_back(WithKubernetesKeys(one));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [key, one] : value.items()) {
    const std::string name = KubernetesKey(key);
    // {"env": {"A_B": …}} and "selector" hold names; lists of variables do not.
    const bool names = HoldsNames(name) || (name == "env" && one.is_object());
    object[name] = names ? one : WithKubernetesKeys(one);
  }
  return object;
}

absl::Status ApplyClusterSpec(const Json& spec, JobObjects* objects) {
  if (!spec.is_object()) return Bad("cluster_spec: expected an object");
  for (const auto& [key, part] : spec.items()) {
    if (!IsOneOf(key, {"pod_spec", "master_pod_spec", "worker_pod_spec",
                       "ps_pod_spec", "service_spec"})) {
      return Bad("cluster_spec: '", key, "' is not one of pod_spec, ",
                 "master_pod_spec, worker_pod_spec, ps_pod_spec, service_spec");
    }
    if (!part.is_object()) return Bad(key, ": expected an object");
  }
  const struct {
    const char* key;
    Json* pod;
  } kParts[] = {{"pod_spec", &objects->master_pod},
                {"pod_spec", &objects->worker_pod},
                {"pod_spec", &objects->ps_pod},
                {"master_pod_spec", &objects->master_pod},
                {"worker_pod_spec", &objects->worker_pod},
                {"ps_pod_spec", &objects->ps_pod}};
  for (const auto& part : kParts) {
    if (!spec.contains(part.key)) continue;
    ELASTICDL_RETURN_IF_ERROR(
        PatchPod(part.key, WithKubernetesKeys(spec[part.key]), part.pod));
  }
  if (spec.contains("service_spec")) {
    PatchService(WithKubernetesKeys(spec["service_spec"]), &objects->service);
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::cluster
