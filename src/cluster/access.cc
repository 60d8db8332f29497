// Roles, and the words about missing rights.
#include "elasticdl/cluster/access.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace elasticdl::cluster {
namespace {

constexpr char kRole[] = "elasticdl-job";
constexpr char kApiGroup[] = "rbac.authorization.k8s.io";

Json RbacObject(const char* kind, const std::string& namespace_name) {
  return {{"apiVersion", absl::StrCat(kApiGroup, "/v1")},
          {"kind", kind},
          {"metadata", {{"name", kRole}, {"namespace", namespace_name}}}};
}

// What follows `before` up to the next '"'; "" when it is not there.
std::string Quoted(const std::string& text, const std::string& before) {
  const size_t begin = text.find(before);
  if (begin == std::string::npos) return "";
  const size_t start = begin + before.size();
  const size_t end = text.find('"', start);
  return end == std::string::npos ? "" : text.substr(start, end - start);
}

std::string GrantCommand(const Forbidden& forbidden) {
  const std::string where =
      forbidden.namespace_name.empty()
          ? ""
          : absl::StrCat(" --namespace=", forbidden.namespace_name);
  if (!forbidden.account.empty()) {
    return absl::StrCat("elasticdl rbac", where,
                        " --service_account=", forbidden.account, " --apply");
  }
  // Only an administrator may hand out rights; `edit` has all but that.
  const bool roles = absl::StartsWith(forbidden.resource, "role");
  return absl::StrCat(
      "kubectl create rolebinding elasticdl-user --clusterrole=",
      roles ? "admin" : "edit", " --user=", forbidden.user, where);
}

}  // namespace

Json MakeRole(const std::string& namespace_name) {
  Json role = RbacObject("Role", namespace_name);
  const auto rule = [](const char* resource, std::vector<const char*> verbs) {
    return Json({{"apiGroups", Json::array({""})},
                 {"resources", Json::array({resource})},
                 {"verbs", verbs}});
  };
  role["rules"] = Json::array({
      rule("pods", {"create", "get", "list", "watch", "patch", "delete"}),
      rule("pods/log", {"get"}),
      rule("services", {"get", "patch"}),
      rule("secrets", {"get", "patch"}),
      rule("events", {"list"}),
  });
  return role;
}

Json MakeRoleBinding(const std::string& namespace_name,
                     const std::string& service_account) {
  Json binding = RbacObject("RoleBinding", namespace_name);
  binding["roleRef"] = {
      {"apiGroup", kApiGroup}, {"kind", "Role"}, {"name", kRole}};
  const Json subject = {{"kind", "ServiceAccount"},
                        {"name", service_account},
                        {"namespace", namespace_name}};
  binding["subjects"] = Json::array({subject});
  return binding;
}

std::optional<Forbidden> ParseForbidden(const std::string& message) {
  Forbidden forbidden;
  forbidden.user = Quoted(message, "User \"");
  forbidden.resource = Quoted(message, "resource \"");
  forbidden.namespace_name = Quoted(message, "in the namespace \"");
  const size_t cannot = message.find("\" cannot ");
  const size_t resource = message.find(" resource \"");
  if (cannot == std::string::npos || resource == std::string::npos ||
      resource < cannot) {
    return std::nullopt;
  }
  constexpr size_t kSkip = sizeof("\" cannot ") - 1;
  forbidden.verb = message.substr(cannot + kSkip, resource - cannot - kSkip);
  if (forbidden.user.empty() || forbidden.verb.empty()) return std::nullopt;
  // system:serviceaccount:<namespace>:<name>
  const std::vector<std::string> parts = absl::StrSplit(forbidden.user, ':');
  if (parts.size() == 4 && parts[1] == "serviceaccount") {
    forbidden.account_namespace = parts[2];
    forbidden.account = parts[3];
  }
  return forbidden;
}

std::string ExplainForbidden(const std::string& message) {
  const std::optional<Forbidden> forbidden = ParseForbidden(message);
  if (!forbidden.has_value()) return message;
  const std::string who =
      forbidden->account.empty()
          ? absl::StrCat("user ", forbidden->user)
          : absl::StrCat("service account ", forbidden->account);
  return absl::StrCat(
      who, " may not ", forbidden->verb, " ", forbidden->resource,
      forbidden->namespace_name.empty()
          ? " in the cluster"
          : absl::StrCat(" in namespace ", forbidden->namespace_name),
      "; somebody who may can grant it: ", GrantCommand(*forbidden));
}

}  // namespace elasticdl::cluster
