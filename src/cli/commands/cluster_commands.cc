// elasticdl list, top, scale, stop, logs and rbac on a cluster.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "commands/cluster_connection.h"
#include "commands/cluster_job.h"
#include "commands/cluster_job_handle.h"
#include "commands/job_commands.h"
#include "elasticdl/cluster/access.h"
#include "elasticdl/common/status.h"
#include "flag_builder.h"
#include "grammar.h"
#include "yaml_json.h"

namespace elasticdl::cli {
namespace {

using kube::Json;

constexpr char kGroup[] = "Options";

absl::StatusOr<std::unique_ptr<JobHandle>> FindClusterJob(
    const JobChoice& choice) {
  ELASTICDL_ASSIGN_OR_RETURN(
      ClusterConnection cluster,
      ConnectCluster(choice.name_space, choice.force_use_kube_config_file));
  return OpenClusterJob(std::move(cluster), choice.job_name);
}

// The namespace that is meant; a kubeconfig is not needed to print.
std::string NamespaceOf(const JobChoice& choice) {
  if (!choice.name_space.empty()) return choice.name_space;
  const auto cluster = ConnectCluster("", choice.force_use_kube_config_file);
  return cluster.ok() ? cluster->client->namespace_name() : "default";
}

absl::Status ApplyRbac(const JobChoice& choice, const std::string& account) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const ClusterConnection cluster,
      ConnectCluster(choice.name_space, choice.force_use_kube_config_file));
  const std::string& name_space = cluster.client->namespace_name();
  for (const Json& object : {cluster::MakeRole(name_space),
                             cluster::MakeRoleBinding(name_space, account)}) {
    ELASTICDL_ASSIGN_OR_RETURN(const kube::Resource resource,
                               kube::ResourceOf(object));
    const absl::Status status =
        cluster.client->Apply(resource, object).status();
    if (!status.ok()) return ExplainClusterError(status, cluster);
  }
  std::printf("service account %s of namespace %s may run ElasticDL jobs\n",
              account.c_str(), name_space.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunClusterList(const std::vector<std::string>& args) {
  FlagSet set("elasticdl list", "Lists the jobs on the cluster.");
  JobChoice choice;
  choice.AddTo(&set, /*with_name=*/false);
  bool json = false;
  set.Add("json", &json, Info(kGroup, "Print JSON."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto cluster =
      ConnectCluster(choice.name_space, choice.force_use_kube_config_file);
  if (!cluster.ok()) return Fail(set, cluster.status());
  const auto jobs = ListClusterJobs(*cluster->client);
  if (!jobs.ok())
    return Fail(set, ExplainClusterError(jobs.status(), *cluster));
  PrintJobs(
      *jobs, json,
      absl::StrCat("no jobs in namespace ", cluster->client->namespace_name(),
                   " of ", cluster->server));
  return 0;
}

int RunClusterTop(const std::vector<std::string>& args) {
  return TopCommand(args, FindClusterJob);
}
int RunClusterScale(const std::vector<std::string>& args) {
  return ScaleCommand(args, FindClusterJob);
}
int RunClusterStop(const std::vector<std::string>& args) {
  return StopCommand(args, FindClusterJob);
}
int RunClusterLogs(const std::vector<std::string>& args) {
  return LogsCommand(args, FindClusterJob);
}

int RunClusterRbac(const std::vector<std::string>& args) {
  FlagSet set("elasticdl rbac",
              "Prints, or applies to the cluster, the Role and RoleBinding "
              "that let the master of a job make its pods.");
  JobChoice choice;
  std::string account = "default";
  bool apply = false;
  bool print = false;
  set.Add("namespace", &choice.name_space,
          Info(kGroup, "Of the jobs; default: the kubeconfig's.")
              .Value("NAME")
              .Check([](const std::string& text) {
                return CheckKubeName(text, 63, false);
              }));
  set.Add("service_account", &account,
          Info(kGroup, "The account of the master pods.")
              .Value("NAME")
              .Check([](const std::string& text) {
                return CheckKubeName(text, 253, true);
              }));
  set.Add("apply", &apply, Info(kGroup, "Apply them to the cluster."));
  set.Add("print", &print,
          Info(kGroup, "Print them, for kubectl apply -f - (the default)."));
  set.Add("force_use_kube_config_file", &choice.force_use_kube_config_file,
          Info(kGroup, "Use ~/.kube/config even inside a cluster."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  if (print || !apply) {
    const std::string name_space = NamespaceOf(choice);
    std::fputs(YamlDocuments({cluster::MakeRole(name_space),
                              cluster::MakeRoleBinding(name_space, account)})
                   .c_str(),
               stdout);
  }
  if (!apply) return 0;
  const absl::Status status = ApplyRbac(choice, account);
  return status.ok() ? 0 : Fail(set, status);
}

}  // namespace elasticdl::cli
