#include "master_pod.h"

#include <algorithm>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

using kube::Json;

// Long enough for the log's last lines to be fetched, short enough that nobody
// waits for the end of a failed job.
constexpr int kFailedPodSeconds = 1;

}  // namespace

absl::Status AddEnvironment(const std::vector<std::string>& environment,
                            const std::string& pattern, Json& pod) {
  if (pattern.empty()) return absl::OkStatus();
  std::regex names;
  try {
    names.assign(pattern);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--populate_env_names '", pattern, "': ", error.what()));
  }
  for (Json& container : pod["spec"]["containers"]) {
    Json& env = container["env"];
    if (!env.is_array()) env = Json::array();
    for (const std::string& entry : environment) {
      const size_t equals = entry.find('=');
      const std::string name = entry.substr(0, equals);
      const bool known = std::any_of(
          env.begin(), env.end(),
          [&](const Json& one) { return kube::TextAt(one, "/name") == name; });
      if (equals == std::string::npos || known ||
          !std::regex_match(name, names)) {
        continue;
      }
      env.push_back({{"name", name}, {"value", entry.substr(equals + 1)}});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MasterPod> MasterPod::Attach(const Options& options) {
  MasterPod job;
  job.options_ = options;
  ELASTICDL_ASSIGN_OR_RETURN(job.config_,
                             kube::LoadClusterConfig(options.config));
  ELASTICDL_ASSIGN_OR_RETURN(job.client_, job.MakeClient());
  return job;
}

absl::StatusOr<MasterPod> MasterPod::Connect(const Options& options) {
  ELASTICDL_ASSIGN_OR_RETURN(MasterPod job, Attach(options));
  ELASTICDL_RETURN_IF_ERROR(job.ReadTemplates());
  ELASTICDL_RETURN_IF_ERROR(job.FindPod());
  ELASTICDL_RETURN_IF_ERROR(job.FindAddress());
  return job;
}

absl::StatusOr<std::unique_ptr<kube::Client>> MasterPod::MakeClient() const {
  ELASTICDL_ASSIGN_OR_RETURN(auto transport, kube::MakeTransport(config_));
  kube::Client::Options options;
  options.namespace_name = options_.namespace_name;
  return std::make_unique<kube::Client>(std::move(transport), options);
}

bool MasterPod::servers_end_for_good() const {
  const std::string policy = kube::TextAt(ps_template_, "/spec/restartPolicy");
  return policy == "Never" || policy == "OnFailure";
}

KubeJob MasterPod::job() const {
  KubeJob job;
  job.name = options_.job_name;
  job.owner_name = options_.pod_name;
  job.owner_uid = kube::TextAt(owner_, "/uid");
  job.master_address = master_address_;
  return job;
}

absl::Status MasterPod::ReadTemplates() {
  const std::string worker =
      JoinPath(options_.template_dir, cluster::kWorkerPodKey);
  auto text = ReadFile(worker);
  if (!text.ok()) return Annotate(text.status(), "--pod_template_dir");
  ELASTICDL_ASSIGN_OR_RETURN(worker_template_, ParseTemplate(worker, *text));
  const std::string ps = JoinPath(options_.template_dir, cluster::kPsPodKey);
  text = ReadFile(ps);
  // Only a job with parameter servers has one.
  if (text.ok()) {
    ELASTICDL_ASSIGN_OR_RETURN(ps_template_, ParseTemplate(ps, *text));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> MasterPod::ParseTemplate(const std::string& path,
                                              const std::string& text) const {
  Json pod = ParseJson(text);
  ELASTICDL_RETURN_IF_ERROR(Annotate(cluster::CheckPodTemplate(pod), path));
  const auto names =
      ReadFile(JoinPath(options_.template_dir, cluster::kPopulateEnvNamesKey));
  // Only when it was asked for.
  if (names.ok()) {
    ELASTICDL_RETURN_IF_ERROR(
        AddEnvironment(options_.environment,
                       std::string(absl::StripAsciiWhitespace(*names)), pod));
  }
  return pod;
}

absl::Status MasterPod::FindPod() {
  if (options_.pod_name.empty()) {
    return absl::FailedPreconditionError(
        "--pod_backend=kubernetes: the variable POD_NAME does not say which "
        "pod this master is");
  }
  auto pod = client_->Get(kube::Pods(), options_.pod_name);
  if (!pod.ok()) {
    return Annotate(ExplainRefusal(pod.status()),
                    absl::StrCat("pod ", options_.pod_name));
  }
  owner_ = {
      {"apiVersion", "v1"},        {"kind", "Pod"},
      {"name", options_.pod_name}, {"uid", kube::TextAt(*pod, "/metadata/uid")},
      {"controller", true},        {"blockOwnerDeletion", false}};
  if (options_.pod_ip.empty()) {
    options_.pod_ip = kube::TextAt(*pod, "/status/podIP");
  }
  return absl::OkStatus();
}

absl::Status MasterPod::FindAddress() {
  const std::string name = cluster::MasterName(options_.job_name);
  std::string host = options_.pod_ip;
  const auto service = client_->Get(kube::Services(), name);
  if (service.ok()) {
    const std::string ip = kube::TextAt(*service, "/spec/clusterIP");
    if (!ip.empty() && ip != "None") host = ip;
    OwnObject(kube::Services(), name);
  } else if (!absl::IsNotFound(service.status())) {
    return Annotate(ExplainRefusal(service.status()),
                    absl::StrCat("service ", name));
  }
  OwnObject(kube::Secrets(), cluster::SecretName(options_.job_name));
  if (host.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there is no service ", name, " and MY_POD_IP is not set: workers ",
        "could not find this master"));
  }
  const bool v6 = absl::StrContains(host, ':');
  master_address_ =
      absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", options_.port);
  return absl::OkStatus();
}

// So that it goes with the pod. The client has done it, unless the objects were
// applied from a file.
void MasterPod::OwnObject(const kube::Resource& resource,
                          const std::string& name) {
  const auto object = client_->Get(resource, name);
  if (object.ok() &&
      !kube::ListAt(*object, "/metadata/ownerReferences").empty()) {
    return;
  }
  const absl::Status status =
      client_
          ->Patch(resource, name,
                  {{"metadata", {{"ownerReferences", Json::array({owner_})}}}})
          .status();
  if (!status.ok() && !absl::IsNotFound(status)) {
    LogWarning(resource.plural, " ", name,
               " will outlive the job: ", ExplainRefusal(status).message());
  }
}

absl::Status MasterPod::ReportOutcome(const std::string& state, int exit_code,
                                      const std::string& message) {
  Json patch = {
      {"metadata",
       {{"annotations",
         {{"elasticdl/outcome", state},
          {"elasticdl/exit-code", absl::StrCat(exit_code)},
          {"elasticdl/message", message}}},
        {"labels", {{"status", exit_code == 0 ? "Finished" : "Failed"}}}}}};
  if (state == "failed") {
    patch["spec"] = {{"activeDeadlineSeconds", kFailedPodSeconds}};
  }
  return client_->Patch(kube::Pods(), options_.pod_name, patch).status();
}

}  // namespace elasticdl::master
