// elasticdl train, evaluate, predict with --image_name.
#include "commands/cluster_job.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "commands/cluster_connection.h"
#include "commands/cluster_job_follow.h"
#include "commands/cluster_job_options.h"
#include "commands/cluster_job_submit.h"
#include "commands/cluster_spec_file.h"
#include "commands/job_commands.h"
#include "commands/job_image.h"
#include "elasticdl/cluster/cluster_spec.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "environment.h"
#include "job_flags.h"
#include "signals.h"
#include "yaml_json.h"

namespace elasticdl::cli {
namespace {

using kube::Json;

absl::StatusOr<std::string> JobToken(const JobFlags& flags) {
  if (flags.token_file.empty()) return jobdir::NewToken();
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(flags.token_file));
  return std::string(absl::StripAsciiWhitespace(text));
}

struct JobPlan {
  Json secret;
  cluster::JobObjects objects;
};

absl::StatusOr<JobPlan> PlanJob(const JobFlags& flags, const FlagSet& set,
                                const std::string& name_space) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string token, JobToken(flags));
  ELASTICDL_ASSIGN_OR_RETURN(
      const cluster::JobOptions options,
      MakeClusterJobOptions(flags, set, name_space, token));
  JobPlan plan;
  ELASTICDL_ASSIGN_OR_RETURN(plan.objects, cluster::MakeJobObjects(options));
  if (!flags.cluster_spec.empty()) {
    ELASTICDL_RETURN_IF_ERROR(
        ApplyClusterSpecFile(flags.cluster_spec, Environment(), &plan.objects));
  } else if (!flags.cluster_spec_json.empty()) {
    const Json spec = Json::parse(flags.cluster_spec_json, nullptr,
                                  /*allow_exceptions=*/false);
    ELASTICDL_RETURN_IF_ERROR(Annotate(
        cluster::ApplyClusterSpec(spec, &plan.objects), "--cluster_spec_json"));
  }
  plan.secret = cluster::MakeSecret(options, plan.objects);
  return plan;
}

absl::Status WriteYaml(const JobPlan& plan, const std::string& file) {
  const std::string text = YamlDocuments(
      {plan.secret, plan.objects.service, plan.objects.master_pod});
  if (file == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  // It holds the job's token.
  return WriteFileAtomic(file, text, 0600);
}

int RunYaml(const JobFlags& flags, const FlagSet& set) {
  // The only use of a cluster here is the name of its namespace.
  std::string name_space = flags.name_space;
  if (!set.IsSet("namespace")) {
    const auto cluster = ConnectCluster("", flags.force_use_kube_config_file);
    if (cluster.ok()) name_space = cluster->client->namespace_name();
  }
  const absl::StatusOr<JobPlan> plan = PlanJob(flags, set, name_space);
  if (!plan.ok()) return Fail(set, plan.status());
  const absl::Status status = WriteYaml(*plan, flags.yaml);
  if (!status.ok()) return Fail(set, status);
  if (flags.yaml != "-") {
    std::printf("%s is written; kubectl apply -f %s submits the job\n",
                flags.yaml.c_str(), flags.yaml.c_str());
  }
  return 0;
}

int SubmitAndFollow(const JobFlags& flags, const FlagSet& set,
                    SignalWatcher& signals) {
  const absl::StatusOr<ClusterConnection> cluster =
      ConnectCluster(set.IsSet("namespace") ? flags.name_space : "",
                     flags.force_use_kube_config_file);
  if (!cluster.ok()) return Fail(set, cluster.status());
  kube::Client& client = *cluster->client;
  const std::string& name_space = client.namespace_name();
  const absl::StatusOr<JobPlan> plan = PlanJob(flags, set, name_space);
  if (!plan.ok()) return Fail(set, plan.status());
  const absl::StatusOr<Json> pod = SubmitJob(
      client, flags.job_name, plan->secret, plan->objects,
      [&](const std::string& words) {
        std::fprintf(stderr, "%s: %s\n", set.command().c_str(), words.c_str());
      });
  if (!pod.ok()) {
    return Fail(set, ExplainClusterError(pod.status(), *cluster));
  }
  std::fprintf(stderr, "job %s is submitted to namespace %s of %s\n",
               flags.job_name.c_str(), name_space.c_str(),
               cluster->server.c_str());
  if (flags.detach) {
    std::printf("%s", ComeBack(flags.job_name, name_space).c_str());
    return 0;
  }
  FollowOptions follow;
  follow.command = set.command();
  follow.job_name = flags.job_name;
  follow.uid = kube::TextAt(*pod, "/metadata/uid");
  return FollowJob(client, follow, signals);
}

// From the local model zoo; the job finds it in the image then.
absl::Status BuildImage(const JobFlags& flags, FlagSet& set) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string image, PrepareImage(flags));
  ELASTICDL_RETURN_IF_ERROR(set.Set("image_name", image));
  return set.Set("model_zoo", kZooInImage);
}

int RunClusterJob(const std::string& name, JobCommand command,
                  const std::vector<std::string>& args) {
  // Before any thread starts. Half a submission is never left by a signal.
  SignalWatcher signals({SIGINT, SIGTERM, SIGHUP});
  JobFlags flags;
  FlagSet set("elasticdl " + name, "");
  // Hints were printed by `elasticdl`, which has started this program.
  const absl::Status status = CheckJobFlags(command, args, &flags, &set);
  if (!status.ok()) return set.Report(status);
  for (const std::string& hint : ClusterJobHints(flags)) {
    std::fprintf(stderr, "%s: hint: %s\n", set.command().c_str(), hint.c_str());
  }
  if (BuildsImage(flags)) {
    const absl::Status built = BuildImage(flags, set);
    if (!built.ok()) return Fail(set, built);
  }
  return flags.yaml.empty() ? SubmitAndFollow(flags, set, signals)
                            : RunYaml(flags, set);
}

}  // namespace

int RunClusterTrain(const std::vector<std::string>& args) {
  return RunClusterJob("train", JobCommand::kTrain, args);
}
int RunClusterEvaluate(const std::vector<std::string>& args) {
  return RunClusterJob("evaluate", JobCommand::kEvaluate, args);
}
int RunClusterPredict(const std::vector<std::string>& args) {
  return RunClusterJob("predict", JobCommand::kPredict, args);
}

}  // namespace elasticdl::cli
