#include "cluster/check.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/connection.h"
#include "cluster/submit.h"
#include "elasticdl/cluster/access.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cli {
namespace {

using cluster::Right;
using kube::Json;

// Is it allowed? Nothing if the client may not ask, or the server cannot
// answer.
std::optional<bool> Allowed(kube::Client& client, const Json& review) {
  const auto resource = kube::ResourceOf(review);
  if (!resource.ok()) return std::nullopt;
  const absl::StatusOr<Json> answer = client.Create(*resource, review);
  if (!answer.ok()) return std::nullopt;
  const Json::json_pointer allowed("/status/allowed");
  if (!answer->contains(allowed)) return std::nullopt;
  return (*answer)[allowed].is_boolean() && (*answer)[allowed].get<bool>();
}

// "create pods, watch pods".
std::string Join(const std::vector<Right>& rights) {
  return absl::StrJoin(rights, ", ", [](std::string* out, const Right& right) {
    absl::StrAppend(out, right.verb, " ", right.resource);
  });
}

// Nobody has a right to this; the refusal contains the user's name, which
// servers before 1.28 do not tell otherwise.
cluster::Subject AskName(kube::Client& client) {
  const absl::Status refused =
      client.Get({"who-am-i.elasticdl.invalid", "v1", "users", true}, "me")
          .status();
  const auto words = cluster::ParseForbidden(std::string(refused.message()));
  if (!words.has_value()) return {"YOUR-USER-NAME", "", ""};
  if (words->account.empty()) return {words->user, "", ""};
  return {"", words->account, words->account_namespace};
}

// Checked here because the master would find out only in its pod.
absl::Status CheckMasterRights(kube::Client& client, const Json& master_pod) {
  const std::string& name_space = client.namespace_name();
  const std::string account =
      kube::TextAt(master_pod, "/spec/serviceAccountName", "default");
  std::vector<Right> missing;
  for (const Right& right : cluster::RightsOf(cluster::Party::kMaster)) {
    const std::optional<bool> allowed =
        Allowed(client, cluster::MakeAccountReview(right, name_space, account));
    if (!allowed.has_value()) return absl::OkStatus();
    if (!*allowed) missing.push_back(right);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the job's master will run as service account ", account,
                   ", which may not ", Join(missing), " in namespace ",
                   name_space, "; an administrator can grant it: ",
                   cluster::GrantCommand(cluster::Party::kMaster, name_space,
                                         {"", account, name_space})));
}

absl::Status CheckClaims(kube::Client& client, const Json& master_pod) {
  for (const Json& volume : kube::ListAt(master_pod, "/spec/volumes")) {
    const std::string claim =
        kube::TextAt(volume, "/persistentVolumeClaim/claimName");
    if (claim.empty()) continue;
    const absl::Status status = client.Get(kube::Claims(), claim).status();
    if (absl::IsPermissionDenied(status)) return absl::OkStatus();
    if (absl::IsNotFound(status)) {
      return absl::NotFoundError(
          absl::StrCat("--volume: there is no claim ", claim, " in namespace ",
                       client.namespace_name(), " (kubectl get pvc -n ",
                       client.namespace_name(), " shows those there)"));
    }
    ELASTICDL_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

// OK too if the server, or one of its webhooks, does not support dry runs.
absl::Status WouldCreate(kube::Client& client, const kube::Resource& resource,
                         const Json& object) {
  absl::Status status = client.TryCreate(resource, object);
  const std::string words = absl::AsciiStrToLower(status.message());
  const bool cannot_try =
      absl::StrContains(words, "dry run") || absl::StrContains(words, "dryrun");
  // CheckName and SubmitJob report or remove an object with this name.
  if (cannot_try || absl::IsAlreadyExists(status)) return absl::OkStatus();
  return status;
}

absl::Status CheckObjects(kube::Client& client, const SubmissionPlan& plan) {
  ELASTICDL_RETURN_IF_ERROR(WouldCreate(client, kube::Secrets(), plan.secret));
  ELASTICDL_RETURN_IF_ERROR(
      WouldCreate(client, kube::Services(), plan.objects.service));
  ELASTICDL_RETURN_IF_ERROR(
      WouldCreate(client, kube::Pods(), plan.objects.master_pod));
  for (const std::string& priority : plan.worker_classes) {
    Json worker = plan.objects.worker_pod;
    if (!priority.empty()) worker["spec"]["priorityClassName"] = priority;
    const absl::Status status = WouldCreate(client, kube::Pods(), worker);
    // The namespace is full now; the master tries again by itself.
    if (absl::IsResourceExhausted(status)) continue;
    ELASTICDL_RETURN_IF_ERROR(Annotate(status, "a worker"));
  }
  if (!plan.has_servers) return absl::OkStatus();
  const absl::Status status =
      WouldCreate(client, kube::Pods(), plan.objects.ps_pod);
  if (absl::IsResourceExhausted(status)) return absl::OkStatus();
  return Annotate(status, "a parameter server");
}

}  // namespace

absl::Status CheckOwnRights(kube::Client& client) {
  const std::string& name_space = client.namespace_name();
  std::vector<Right> missing;
  for (const Right& right : cluster::RightsOf(cluster::Party::kClient)) {
    if (Allowed(client, cluster::MakeSelfReview(right, name_space)) == false) {
      missing.push_back(right);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  const cluster::Subject me = AskName(client);
  return absl::PermissionDeniedError(absl::StrCat(
      me.user.empty() ? absl::StrCat("service account ", me.account)
                      : absl::StrCat("user ", me.user),
      " may not ", Join(missing), " in namespace ", name_space,
      "; an administrator can grant it: ",
      cluster::GrantCommand(cluster::Party::kClient, name_space, me)));
}

absl::Status CheckSubmission(kube::Client& client, const SubmissionPlan& plan) {
  ELASTICDL_RETURN_IF_ERROR(CheckNamespace(client));
  ELASTICDL_RETURN_IF_ERROR(CheckOwnRights(client));
  ELASTICDL_RETURN_IF_ERROR(CheckName(client, plan.job_name));
  ELASTICDL_RETURN_IF_ERROR(CheckClaims(client, plan.objects.master_pod));
  ELASTICDL_RETURN_IF_ERROR(CheckObjects(client, plan));
  return CheckMasterRights(client, plan.objects.master_pod);
}

}  // namespace elasticdl::cli
