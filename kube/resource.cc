#include "resource.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace elasticdl::kube {
namespace {

struct KnownKind {
  const char* kind;
  const char* group;
  const char* plural;
  bool namespaced;
};
constexpr KnownKind kKinds[] = {
    {"Pod", "", "pods", true},
    {"Service", "", "services", true},
    {"Secret", "", "secrets", true},
    {"ConfigMap", "", "configmaps", true},
    {"Event", "", "events", true},
    {"Namespace", "", "namespaces", false},
    {"Node", "", "nodes", false},
    {"ServiceAccount", "", "serviceaccounts", true},
    {"PersistentVolume", "", "persistentvolumes", false},
    {"PersistentVolumeClaim", "", "persistentvolumeclaims", true},
    {"ResourceQuota", "", "resourcequotas", true},
    {"Role", "rbac.authorization.k8s.io", "roles", true},
    {"RoleBinding", "rbac.authorization.k8s.io", "rolebindings", true},
    {"ClusterRole", "rbac.authorization.k8s.io", "clusterroles", false},
    {"ClusterRoleBinding", "rbac.authorization.k8s.io", "clusterrolebindings",
     false},
    {"SelfSubjectAccessReview", "authorization.k8s.io",
     "selfsubjectaccessreviews", false},
    {"LocalSubjectAccessReview", "authorization.k8s.io",
     "localsubjectaccessreviews", true},
    {"PriorityClass", "scheduling.k8s.io", "priorityclasses", false},
};

}  // namespace

Resource Pods() { return {"", "v1", "pods", true}; }
Resource Services() { return {"", "v1", "services", true}; }
Resource Secrets() { return {"", "v1", "secrets", true}; }
Resource Namespaces() { return {"", "v1", "namespaces", false}; }
Resource Claims() { return {"", "v1", "persistentvolumeclaims", true}; }
Resource Events() { return {"", "v1", "events", true}; }

absl::StatusOr<Resource> ResourceOf(const Json& object) {
  const std::string api_version = TextAt(object, "/apiVersion");
  const std::string kind = TextAt(object, "/kind");
  const size_t slash = api_version.find('/');
  const std::string group =
      slash == std::string::npos ? "" : api_version.substr(0, slash);
  const std::string version =
      slash == std::string::npos ? api_version : api_version.substr(slash + 1);
  for (const KnownKind& known : kKinds) {
    if (kind == known.kind && group == known.group && !version.empty()) {
      return Resource{group, version, known.plural, known.namespaced};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown kind of object: apiVersion \"", api_version,
                   "\", kind \"", kind, "\""));
}

std::vector<std::string> PathOf(const Resource& resource,
                                const std::string& namespace_name,
                                const std::string& name) {
  std::vector<std::string> path;
  if (resource.group.empty()) {
    path = {"api", resource.version};
  } else {
    path = {"apis", resource.group, resource.version};
  }
  if (resource.namespaced && !namespace_name.empty()) {
    path.insert(path.end(), {"namespaces", namespace_name});
  }
  path.push_back(resource.plural);
  if (!name.empty()) path.push_back(name);
  return path;
}

// Fields of server data -------------------------------------------------------

namespace {

// A segment of a JSON pointer without its escapes (RFC 6901).
std::string Unescape(absl::string_view segment) {
  return absl::StrReplaceAll(segment, {{"~0", "~"}, {"~1", "/"}});
}

const Json* Find(const Json& object, absl::string_view pointer) {
  const Json* at = &object;
  for (const absl::string_view key :
       absl::StrSplit(pointer, '/', absl::SkipEmpty())) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(Unescape(key));
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at;
}

}  // namespace

std::string TextAt(const Json& object, absl::string_view pointer,
                   const std::string& fallback) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_string() ? found->get<std::string>()
                                                : fallback;
}

int64_t NumberAt(const Json& object, absl::string_view pointer,
                 int64_t fallback) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>()
                                                        : fallback;
}

const Json& ListAt(const Json& object, absl::string_view pointer) {
  static const Json& empty = *new Json(Json::array());
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_array() ? *found : empty;
}

}  // namespace elasticdl::kube
