#include "cluster/submit.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/pod_tracker.h"
#include "elasticdl/cluster/pod_view.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cli {
namespace {

using kube::Json;

// Pods have 30 seconds to terminate; nodes need a little more.
constexpr absl::Duration kGonePatience = absl::Seconds(60);

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Deletes the objects that were created so far, unless Keep is called.
// Thread-compatible.
class Made {
 public:
  explicit Made(kube::Client& client) : client_(client) {}
  ~Made() {
    for (auto it = all_.rbegin(); it != all_.rend(); ++it) {
      client_.Delete(it->first, it->second).IgnoreError();
    }
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  absl::StatusOr<Json> Create(const kube::Resource& resource,
                              const Json& object) {
    absl::StatusOr<Json> created = client_.Create(resource, object);
    // After a lost response the object may exist. An object that existed before
    // must not be removed.
    if (created.ok() || absl::IsUnavailable(created.status()) ||
        absl::IsDeadlineExceeded(created.status())) {
      all_.emplace_back(resource, kube::TextAt(object, "/metadata/name"));
    }
    return created;
  }
  void Keep() { all_.clear(); }

 private:
  kube::Client& client_;
  std::vector<std::pair<kube::Resource, std::string>> all_;
};

absl::Status NameIsTaken(const kube::Client& client,
                         const std::string& job_name,
                         const cluster::PodView& view) {
  return absl::AlreadyExistsError(absl::StrCat(
      "a job named ", job_name, " already exists in namespace ",
      client.namespace_name(), " (", view.State(), ", since ", view.created,
      "): choose another --job_name, or end it with elasticdl stop "
      "--job_name=",
      job_name, " --namespace=", client.namespace_name()));
}

// Removes an ended job of the same name.
absl::Status MakeRoom(kube::Client& client, const std::string& job_name,
                      const Say& say) {
  const absl::StatusOr<Json> pod =
      client.Get(kube::Pods(), cluster::MasterName(job_name));
  if (absl::IsNotFound(pod.status())) return absl::OkStatus();
  if (!pod.ok()) return pod.status();
  const cluster::PodView view = cluster::ViewPod(*pod);
  if (view.deleting) {
    say(absl::StrCat("waiting for the end of an earlier job ", job_name));
    return RemoveJob(client, job_name);
  }
  if (!view.Ended()) return NameIsTaken(client, job_name, view);
  say(absl::StrCat("removing an earlier job ", job_name, ", which has ended (",
                   view.State(), ")"));
  return RemoveJob(client, job_name);
}

// An object with that name exists without a master pod.
absl::Status ExplainLeftover(const kube::Resource& resource,
                             const std::string& name,
                             const kube::Client& client,
                             const std::string& job_name) {
  return absl::AlreadyExistsError(absl::StrCat(
      resource.plural, " ", name,
      " already exists: it belongs to no running job; either somebody is "
      "submitting one of that name now, or it is left of an earlier one: "
      "elasticdl stop --job_name=",
      job_name, " --namespace=", client.namespace_name(), " removes it"));
}

bool IsOwned(const Json& object) {
  return !kube::ListAt(object, "/metadata/ownerReferences").empty();
}

// Creates the object. If one with its name belongs to a pod that is gone, the
// cluster is already deleting it: waits for that.
absl::StatusOr<Json> CreateOver(kube::Client& client, Made& made,
                                const kube::Resource& resource,
                                const Json& object,
                                const std::string& job_name) {
  absl::StatusOr<Json> created = made.Create(resource, object);
  if (!absl::IsAlreadyExists(created.status())) return created;
  const std::string name = kube::TextAt(object, "/metadata/name");
  const absl::StatusOr<Json> there = client.Get(resource, name);
  if (there.ok() && !IsOwned(*there)) {
    return ExplainLeftover(resource, name, client, job_name);
  }
  if (there.ok()) {
    ELASTICDL_RETURN_IF_ERROR(IgnoreMissing(client.Delete(resource, name)));
  }
  return made.Create(resource, object);
}

}  // namespace

absl::Status CheckName(kube::Client& client, const std::string& job_name) {
  const std::string master = cluster::MasterName(job_name);
  const absl::StatusOr<Json> pod = client.Get(kube::Pods(), master);
  if (pod.ok()) {
    const cluster::PodView view = cluster::ViewPod(*pod);
    return view.deleting || view.Ended() ? absl::OkStatus()
                                         : NameIsTaken(client, job_name, view);
  }
  if (!absl::IsNotFound(pod.status())) return pod.status();
  for (const auto& [resource, name] :
       {std::pair(kube::Secrets(), cluster::SecretName(job_name)),
        std::pair(kube::Services(), master)}) {
    const absl::StatusOr<Json> there = client.Get(resource, name);
    if (there.ok() && !IsOwned(*there)) {
      return ExplainLeftover(resource, name, client, job_name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> SubmitJob(kube::Client& client,
                               const std::string& job_name, const Json& secret,
                               const cluster::JobObjects& objects,
                               const Say& say) {
  ELASTICDL_RETURN_IF_ERROR(MakeRoom(client, job_name, say));
  Made made(client);
  ELASTICDL_RETURN_IF_ERROR(
      CreateOver(client, made, kube::Secrets(), secret, job_name).status());
  ELASTICDL_RETURN_IF_ERROR(
      CreateOver(client, made, kube::Services(), objects.service, job_name)
          .status());
  ELASTICDL_ASSIGN_OR_RETURN(Json pod,
                             made.Create(kube::Pods(), objects.master_pod));
  const Json patch = cluster::OwnerPatch(pod);
  ELASTICDL_RETURN_IF_ERROR(
      client.Patch(kube::Secrets(), cluster::SecretName(job_name), patch)
          .status());
  ELASTICDL_RETURN_IF_ERROR(
      client.Patch(kube::Services(), cluster::MasterName(job_name), patch)
          .status());
  made.Keep();
  return pod;
}

absl::Status RemoveJob(kube::Client& client, const std::string& job_name) {
  const std::string selector = cluster::JobSelector(job_name);
  ELASTICDL_RETURN_IF_ERROR(IgnoreMissing(
      client.Delete(kube::Pods(), cluster::MasterName(job_name))));
  // The cluster would delete its pods later; a new job needs their names now.
  ELASTICDL_ASSIGN_OR_RETURN(const Json pods,
                             client.List(kube::Pods(), selector));
  for (const Json& pod : kube::ListAt(pods, "/items")) {
    ELASTICDL_RETURN_IF_ERROR(IgnoreMissing(
        client.Delete(kube::Pods(), kube::TextAt(pod, "/metadata/name"))));
  }
  ELASTICDL_RETURN_IF_ERROR(IgnoreMissing(
      client.Delete(kube::Services(), cluster::MasterName(job_name))));
  ELASTICDL_RETURN_IF_ERROR(IgnoreMissing(
      client.Delete(kube::Secrets(), cluster::SecretName(job_name))));
  return WaitUntilGone(client, selector, kGonePatience);
}

}  // namespace elasticdl::cli
