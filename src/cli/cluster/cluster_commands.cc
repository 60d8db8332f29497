// elasticdl list, top, open, scale, kill, stop, logs and rbac on a cluster.
#include "cluster/cluster_commands.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/connection.h"
#include "cluster/handle.h"
#include "elasticdl/cluster/access.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/yaml_json.h"
#include "kill.h"
#include "open.h"
#include "report.h"
#include "top_scale_stop_logs.h"

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

// Without grace, the pod is gone from the API server at once; its node follows.
absl::Status DeletePod(const JobChoice& choice, const std::string& pod,
                       bool with_grace) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const ClusterConnection cluster,
      ConnectCluster(choice.name_space, choice.force_use_kube_config_file));
  return ExplainClusterError(
      cluster.client->Delete(
          kube::Pods(), pod,
          with_grace ? absl::Seconds(-1) : absl::ZeroDuration()),
      cluster);
}

// The namespace to use; printing needs no kubeconfig.
std::string NamespaceOf(const JobChoice& choice) {
  if (!choice.name_space.empty()) return choice.name_space;
  const auto cluster = ConnectCluster("", choice.force_use_kube_config_file);
  return cluster.ok() ? cluster->client->namespace_name() : "default";
}

// The account that `elasticdl rbac` is about.
struct RbacFlags {
  JobChoice choice;
  bool client = false;
  std::string user;
  // NAME or NAMESPACE:NAME.
  std::string account;
  bool apply = false;
  bool print = false;

  void AddTo(flags::FlagSet* set);
  absl::Status Check() const;
  cluster::Party party() const {
    return client ? cluster::Party::kClient : cluster::Party::kMaster;
  }
  cluster::Subject SubjectIn(const std::string& name_space) const;
};

absl::Status CheckAccount(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return flags::CheckKubeName(text, 253, true);
  ELASTICDL_RETURN_IF_ERROR(
      flags::CheckKubeName(text.substr(0, colon), 63, false));
  return flags::CheckKubeName(text.substr(colon + 1), 253, true);
}

void RbacFlags::AddTo(flags::FlagSet* set) {
  set->Add("namespace", &choice.name_space,
           flags::Info(kGroup, "Of the jobs; default: the kubeconfig's.")
               .Value("NAME")
               .Check([](const std::string& text) {
                 return flags::CheckKubeName(text, 63, false);
               }));
  set->Add(
      "service_account", &account,
      flags::Info(kGroup,
                  "The account of the master pods (default: default); with "
                  "--client of whoever submits from a pod, NAMESPACE:NAME when "
                  "it is of another namespace.")
          .Value("NAME")
          .Check(CheckAccount));
  set->Add("client", &client,
           flags::Info(
               kGroup,
               "Grant what people need who submit and watch jobs, instead of "
               "what masters need."));
  set->Add(
      "user", &user,
      flags::Info(kGroup, "With --client: the user, as the cluster names it.")
          .Value("NAME"));
  set->Add("apply", &apply, flags::Info(kGroup, "Apply them to the cluster."));
  set->Add(
      "print", &print,
      flags::Info(kGroup, "Print them, for kubectl apply -f - (the default)."));
  set->Add("force_use_kube_config_file", &choice.force_use_kube_config_file,
           flags::Info(kGroup, "Use ~/.kube/config even inside a cluster."));
}

absl::Status RbacFlags::Check() const {
  if (!client && !user.empty()) {
    return absl::InvalidArgumentError(
        "--user goes with --client: masters run under service accounts");
  }
  if (client && user.empty() == account.empty()) {
    return absl::InvalidArgumentError(
        "--client needs either --user or --service_account");
  }
  if (!client && absl::StrContains(account, ':')) {
    return absl::InvalidArgumentError(
        "--service_account: master pods run under an account of their own "
        "namespace");
  }
  return absl::OkStatus();
}

cluster::Subject RbacFlags::SubjectIn(const std::string& name_space) const {
  if (!user.empty()) return {user, "", ""};
  if (account.empty()) return {"", "default", name_space};
  const size_t colon = account.find(':');
  if (colon == std::string::npos) return {"", account, name_space};
  return {"", account.substr(colon + 1), account.substr(0, colon)};
}

std::vector<Json> RbacObjects(const RbacFlags& flags,
                              const std::string& name_space) {
  return {cluster::MakeRole(flags.party(), name_space),
          cluster::MakeRoleBinding(flags.party(), name_space,
                                   flags.SubjectIn(name_space))};
}

absl::Status ApplyRbac(const RbacFlags& flags) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const ClusterConnection cluster,
      ConnectCluster(flags.choice.name_space,
                     flags.choice.force_use_kube_config_file));
  const std::string& name_space = cluster.client->namespace_name();
  for (const Json& object : RbacObjects(flags, name_space)) {
    ELASTICDL_ASSIGN_OR_RETURN(const kube::Resource resource,
                               kube::ResourceOf(object));
    const absl::Status status =
        cluster.client->Apply(resource, object).status();
    if (!status.ok()) return ExplainClusterError(status, cluster);
  }
  const cluster::Subject subject = flags.SubjectIn(name_space);
  const std::string who =
      subject.user.empty()
          ? absl::StrCat("service account ", subject.account, " of namespace ",
                         subject.account_namespace)
          : absl::StrCat("user ", subject.user);
  std::printf("%s may %s ElasticDL jobs in namespace %s\n", who.c_str(),
              flags.client ? "submit and watch" : "run", name_space.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunClusterList(const std::vector<std::string>& args) {
  flags::FlagSet set("elasticdl list", "Lists the jobs on the cluster.");
  JobChoice choice;
  choice.AddTo(&set, /*with_name=*/false);
  bool json = false;
  set.Add("json", &json, flags::Info(kGroup, "Print JSON."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto cluster =
      ConnectCluster(choice.name_space, choice.force_use_kube_config_file);
  if (!cluster.ok()) return Fail(set, cluster.status());
  const auto jobs = ListClusterJobs(*cluster->client);
  absl::Status status = jobs.status();
  if (jobs.ok() && jobs->empty()) status = CheckNamespace(*cluster->client);
  if (!status.ok()) return Fail(set, ExplainClusterError(status, *cluster));
  PrintJobs(
      *jobs, json,
      absl::StrCat("no jobs in namespace ", cluster->client->namespace_name(),
                   " of ", cluster->server));
  return 0;
}

int RunClusterTop(const std::vector<std::string>& args) {
  return TopCommand(args, FindClusterJob);
}
int RunClusterOpen(const std::vector<std::string>& args) {
  return OpenCommand(args, FindClusterJob);
}
int RunClusterReport(const std::vector<std::string>& args) {
  return ReportCommand(args, FindClusterJob);
}
int RunClusterScale(const std::vector<std::string>& args) {
  return ScaleCommand(args, FindClusterJob);
}
int RunClusterKill(const std::vector<std::string>& args) {
  return KillCommand(
      args, FindClusterJob,
      [](const JobChoice& choice, const DoomedPod& pod, bool notice) {
        return DeletePod(choice, pod.name, notice);
      });
}
int RunClusterStop(const std::vector<std::string>& args) {
  return StopCommand(args, FindClusterJob);
}
int RunClusterLogs(const std::vector<std::string>& args) {
  return LogsCommand(args, FindClusterJob);
}

int RunClusterRbac(const std::vector<std::string>& args) {
  flags::FlagSet set(
      "elasticdl rbac",
      "Prints, or applies to the cluster, the Role and RoleBinding "
      "that let the master of a job make its pods, or with --client "
      "those that let people submit jobs. What others were granted "
      "stays.");
  RbacFlags flags;
  flags.AddTo(&set);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  if (const absl::Status bad = flags.Check(); !bad.ok()) return set.Report(bad);
  if (flags.print || !flags.apply) {
    std::fputs(
        flags::YamlDocuments(RbacObjects(flags, NamespaceOf(flags.choice)))
            .c_str(),
        stdout);
  }
  if (!flags.apply) return 0;
  const absl::Status status = ApplyRbac(flags);
  return status.ok() ? 0 : Fail(set, status);
}

}  // namespace elasticdl::cli
