// Roles, and the words about missing rights.
#include "elasticdl/cluster/access.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace elasticdl::cluster {
namespace {

constexpr absl::string_view kNoClass = "no PriorityClass with name ";

constexpr char kApiGroup[] = "rbac.authorization.k8s.io";
constexpr char kReviewGroup[] = "authorization.k8s.io";

struct Rule {
  const char* group;
  const char* resource;
  std::vector<const char*> verbs;
  // Without it something is told later or less well, but all works.
  bool optional = false;
};

std::vector<Rule> RulesOf(Party party) {
  if (party == Party::kMaster) {
    return {
        {"", "pods", {"create", "get", "list", "watch", "patch", "delete"}},
        {"", "services", {"get", "patch"}},
        {"", "secrets", {"get", "patch"}},
    };
  }
  return {
      {"", "pods", {"create", "get", "list", "watch", "delete"}},
      {"", "pods/log", {"get"}},
      {"", "pods/proxy", {"get", "create"}},
      {"", "services", {"create", "get", "patch", "delete"}},
      {"", "secrets", {"create", "get", "patch", "delete"}},
      // For checks before a job is submitted.
      {"", "namespaces", {"get"}, true},
      {"", "persistentvolumeclaims", {"get"}, true},
      {kReviewGroup, "localsubjectaccessreviews", {"create"}, true},
  };
}

const char* RoleName(Party party) {
  return party == Party::kMaster ? "elasticdl-job" : "elasticdl-client";
}

Json RbacObject(const char* kind, const std::string& name,
                const std::string& namespace_name) {
  return {{"apiVersion", absl::StrCat(kApiGroup, "/v1")},
          {"kind", kind},
          {"metadata", {{"name", name}, {"namespace", namespace_name}}}};
}

// Names of users may hold anything, names of bindings neither '/' nor '%'.
// Two users never get one name.
std::string NamePart(const std::string& user) {
  return absl::StrReplaceAll(user, {{"_", "__"}, {"/", "_2F"}, {"%", "_25"}});
}

std::string ShellWord(const std::string& word) {
  for (const char c : word) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("-_.:@/,=+", c)) {
      return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                          "'");
    }
  }
  return word;
}

Json Attributes(const Right& right, const std::string& namespace_name) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(right.resource, absl::MaxSplits('/', 1));
  return {{"namespace", namespace_name},
          {"verb", right.verb},
          {"group", right.group},
          {"resource", parts.first},
          {"subresource", parts.second}};
}

Json Review(const char* kind) {
  return {{"apiVersion", absl::StrCat(kReviewGroup, "/v1")}, {"kind", kind}};
}

// What follows `before` up to the next '"'; "" when it is not there.
std::string Quoted(const std::string& text, const std::string& before) {
  const size_t begin = text.find(before);
  if (begin == std::string::npos) return "";
  const size_t start = begin + before.size();
  const size_t end = text.find('"', start);
  return end == std::string::npos ? "" : text.substr(start, end - start);
}

// Only an administrator of the namespace may hand out rights.
std::string AdminCommand(const Subject& subject,
                         const std::string& namespace_name) {
  return absl::StrCat(
      "kubectl create rolebinding ",
      ShellWord(absl::StrCat("elasticdl-admin-", NamePart(UserName(subject)))),
      " --clusterrole=admin ",
      subject.user.empty()
          ? absl::StrCat("--serviceaccount=", subject.account_namespace, ":",
                         subject.account)
          : absl::StrCat("--user=", ShellWord(subject.user)),
      namespace_name.empty() ? ""
                             : absl::StrCat(" --namespace=", namespace_name));
}

// The server refuses a pod with an unknown class as if it were forbidden.
std::string MissingPriorityClass(absl::string_view message) {
  const size_t at = message.find(kNoClass);
  if (at == absl::string_view::npos) return "";
  message.remove_prefix(at + kNoClass.size());
  return std::string(message.substr(0, message.find(" was found")));
}

}  // namespace

std::vector<Right> RightsOf(Party party) {
  std::vector<Right> rights;
  for (const Rule& rule : RulesOf(party)) {
    if (rule.optional) continue;
    for (const char* verb : rule.verbs) {
      rights.push_back({verb, rule.resource, rule.group});
    }
  }
  return rights;
}

std::string UserName(const Subject& subject) {
  if (!subject.user.empty()) return subject.user;
  return absl::StrCat("system:serviceaccount:", subject.account_namespace, ":",
                      subject.account);
}

Json MakeRole(Party party, const std::string& namespace_name) {
  Json role = RbacObject("Role", RoleName(party), namespace_name);
  role["rules"] = Json::array();
  for (const Rule& rule : RulesOf(party)) {
    role["rules"].push_back({{"apiGroups", Json::array({rule.group})},
                             {"resources", Json::array({rule.resource})},
                             {"verbs", rule.verbs}});
  }
  return role;
}

Json MakeRoleBinding(Party party, const std::string& namespace_name,
                     const Subject& subject) {
  const bool own_account =
      subject.user.empty() && subject.account_namespace == namespace_name;
  Json binding = RbacObject(
      "RoleBinding",
      absl::StrCat(RoleName(party), "-",
                   own_account ? subject.account : NamePart(UserName(subject))),
      namespace_name);
  binding["roleRef"] = {
      {"apiGroup", kApiGroup}, {"kind", "Role"}, {"name", RoleName(party)}};
  Json who;
  if (subject.user.empty()) {
    who = {{"kind", "ServiceAccount"},
           {"name", subject.account},
           {"namespace", subject.account_namespace}};
  } else {
    who = {{"kind", "User"}, {"apiGroup", kApiGroup}, {"name", subject.user}};
  }
  binding["subjects"] = Json::array({who});
  return binding;
}

Json MakeSelfReview(const Right& right, const std::string& namespace_name) {
  Json review = Review("SelfSubjectAccessReview");
  review["spec"]["resourceAttributes"] = Attributes(right, namespace_name);
  return review;
}

Json MakeAccountReview(const Right& right, const std::string& namespace_name,
                       const std::string& account) {
  Json review = Review("LocalSubjectAccessReview");
  review["metadata"]["namespace"] = namespace_name;
  review["spec"]["resourceAttributes"] = Attributes(right, namespace_name);
  review["spec"]["user"] = UserName({"", account, namespace_name});
  review["spec"]["groups"] = {
      "system:serviceaccounts",
      absl::StrCat("system:serviceaccounts:", namespace_name),
      "system:authenticated"};
  return review;
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

std::string GrantCommand(Party party, const std::string& namespace_name,
                         const Subject& subject) {
  std::string who;
  if (!subject.user.empty()) {
    who = absl::StrCat(" --user=", ShellWord(subject.user));
  } else if (subject.account_namespace != namespace_name) {
    who = absl::StrCat(" --service_account=", subject.account_namespace, ":",
                       subject.account);
  } else if (party == Party::kClient || subject.account != "default") {
    who = absl::StrCat(" --service_account=", subject.account);
  }
  return absl::StrCat("elasticdl rbac",
                      party == Party::kClient ? " --client" : "",
                      " --namespace=", namespace_name, who, " --apply");
}

std::string ExplainForbidden(const std::string& message, Party party) {
  if (const std::string name = MissingPriorityClass(message); !name.empty()) {
    return absl::StrCat(
        "there is no priority class ", name,
        " on the cluster (kubectl get priorityclasses shows those there); "
        "choose another with --worker_pod_priority or --master_pod_priority, "
        "or have an administrator make it: kubectl create priorityclass ",
        name, " --value=NUMBER");
  }
  const std::optional<Forbidden> forbidden = ParseForbidden(message);
  if (!forbidden.has_value()) return message;
  Subject subject;
  subject.account = forbidden->account;
  subject.account_namespace = forbidden->account_namespace;
  if (forbidden->account.empty()) subject.user = forbidden->user;
  const std::string& where = forbidden->namespace_name;
  const bool roles = absl::StartsWith(forbidden->resource, "role");
  return absl::StrCat(
      subject.user.empty() ? absl::StrCat("service account ", subject.account)
                           : absl::StrCat("user ", subject.user),
      " may not ", forbidden->verb, " ", forbidden->resource,
      where.empty() ? " in the cluster" : absl::StrCat(" in namespace ", where),
      "; an administrator can grant it: ",
      roles || where.empty() ? AdminCommand(subject, where)
                             : GrantCommand(party, where, subject));
}

}  // namespace elasticdl::cluster
