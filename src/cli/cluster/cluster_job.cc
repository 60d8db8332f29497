// elasticdl train, evaluate, predict with --image.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cluster/check.h"
#include "cluster/cluster_commands.h"
#include "cluster/connection.h"
#include "cluster/follow.h"
#include "cluster/object_options.h"
#include "cluster/spec_file.h"
#include "cluster/submit.h"
#include "elasticdl/cluster/cluster_spec.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/flags/yaml_json.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/signals.h"
#include "top_scale_stop_logs.h"
#include "zoo/job_image.h"

namespace elasticdl::cli {
namespace {

using kube::Json;

absl::StatusOr<std::string> JobToken(const flags::JobFlags& flags) {
  if (flags.token_file.empty()) return jobdir::NewToken();
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text,
                             ReadFile(flags.token_file));
  return std::string(absl::StripAsciiWhitespace(text));
}

// A file for the model must be in the zoo; the pods would notice only after a
// build and a push. Workers decide which file it is.
absl::Status CheckLocalModel(const flags::JobFlags& flags) {
  const std::filesystem::path file = flags.ModelFile();
  if (flags.RunsJobCommand() || file.empty() || !IsDirectory(flags.model_zoo)) {
    return absl::OkStatus();
  }
  const std::string stem = file.stem();
  const auto names = ListDirectory(file.parent_path());
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name == stem || absl::StartsWith(name, absl::StrCat(stem, "."))) {
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "--model_def=", flags.model_def, ": there is no ", file.string(),
      ", nor anything else by that name, to build into the image"));
}

// The workers' priority classes, as the pod manager will choose them.
absl::StatusOr<std::vector<std::string>> WorkerClasses(
    const flags::JobFlags& flags) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const flags::WorkerPriority priority,
      flags::ParseWorkerPriority(flags.worker_pod_priority));
  std::set<std::string> classes;
  for (int64_t i = 0; i < flags.num_workers; ++i) {
    classes.insert(priority.ClassOf(i, flags.num_workers));
  }
  return std::vector<std::string>(classes.begin(), classes.end());
}

absl::StatusOr<SubmissionPlan> PlanJob(const flags::JobFlags& flags,
                                       const flags::FlagSet& set,
                                       const std::string& name_space) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string token, JobToken(flags));
  ELASTICDL_ASSIGN_OR_RETURN(
      const cluster::JobOptions options,
      MakeClusterJobOptions(flags, set, name_space, token));
  SubmissionPlan plan;
  plan.job_name = flags.job_name;
  plan.has_servers = flags.HasServers();
  ELASTICDL_ASSIGN_OR_RETURN(plan.worker_classes, WorkerClasses(flags));
  ELASTICDL_ASSIGN_OR_RETURN(plan.objects, cluster::MakeJobObjects(options));
  if (!flags.cluster_spec.empty()) {
    ELASTICDL_RETURN_IF_ERROR(ApplyClusterSpecFile(
        flags.cluster_spec, flags::Environment(), &plan.objects));
  } else if (!flags.cluster_spec_json.empty()) {
    const Json spec = ParseJson(flags.cluster_spec_json);
    ELASTICDL_RETURN_IF_ERROR(Annotate(
        cluster::ApplyClusterSpec(spec, &plan.objects), "--cluster_spec_json"));
  }
  plan.secret = cluster::MakeSecret(options, plan.objects);
  return plan;
}

absl::Status WriteYaml(const SubmissionPlan& plan, const std::string& file) {
  const std::string text = flags::YamlDocuments(
      {plan.secret, plan.objects.service, plan.objects.master_pod});
  if (file == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  // It contains the job's token.
  return WriteFileAtomic(file, text, 0600);
}

// The path in the local model zoo becomes the one in the image.
absl::Status BuildJobImage(const flags::JobFlags& flags, flags::FlagSet& set) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string image, PrepareImage(flags));
  ELASTICDL_RETURN_IF_ERROR(set.Set("image", image));
  return set.Set("model_zoo", flags::kZooInImage);
}

// Makes the job's objects, and builds the image if necessary. `check` is called
// with the objects before the build.
absl::StatusOr<SubmissionPlan> PrepareJob(
    flags::JobFlags& flags, flags::FlagSet& set, const std::string& name_space,
    const std::function<absl::Status(const SubmissionPlan&)>& check) {
  const bool builds = BuildsImage(flags);
  flags::JobFlags first = flags;
  // Its tag is a hash of its content.
  if (builds) {
    ELASTICDL_RETURN_IF_ERROR(CheckLocalModel(flags));
    first.image =
        JobImageName(flags.docker_image_prefix, flags.job_name, "to-be-built");
  }
  ELASTICDL_ASSIGN_OR_RETURN(SubmissionPlan plan,
                             PlanJob(first, set, name_space));
  ELASTICDL_RETURN_IF_ERROR(check(plan));
  if (!builds) return plan;
  ELASTICDL_RETURN_IF_ERROR(BuildJobImage(flags, set));
  return PlanJob(flags, set, name_space);
}

int RunYaml(flags::JobFlags& flags, flags::FlagSet& set) {
  // The cluster is only asked for its namespace.
  std::string name_space = flags.name_space;
  if (!set.IsSet("namespace")) {
    const auto cluster = ConnectCluster("", flags.force_use_kube_config_file);
    if (cluster.ok()) name_space = cluster->client->namespace_name();
  }
  const absl::StatusOr<SubmissionPlan> plan =
      PrepareJob(flags, set, name_space,
                 [](const SubmissionPlan&) { return absl::OkStatus(); });
  if (!plan.ok()) return Fail(set, plan.status());
  const absl::Status status = WriteYaml(*plan, flags.yaml);
  if (!status.ok()) return Fail(set, status);
  if (flags.yaml != "-") {
    std::printf("%s is written; kubectl apply -f %s submits the job\n",
                flags.yaml.c_str(), flags.yaml.c_str());
  }
  return 0;
}

int SubmitAndFollow(flags::JobFlags& flags, flags::FlagSet& set,
                    process::SignalWatcher& signals) {
  const absl::StatusOr<ClusterConnection> cluster =
      ConnectCluster(set.IsSet("namespace") ? flags.name_space : "",
                     flags.force_use_kube_config_file);
  if (!cluster.ok()) return Fail(set, cluster.status());
  kube::Client& client = *cluster->client;
  const std::string& name_space = client.namespace_name();
  const absl::StatusOr<SubmissionPlan> plan =
      PrepareJob(flags, set, name_space, [&](const SubmissionPlan& checked) {
        return ExplainClusterError(CheckSubmission(client, checked), *cluster);
      });
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

int RunClusterJob(const std::string& name, flags::JobCommand command,
                  const std::vector<std::string>& args) {
  // Before any thread starts, so that a signal cannot leave half a submission.
  process::SignalWatcher signals({SIGINT, SIGTERM, SIGHUP});
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl " + name, "");
  // `elasticdl`, which started this program, has printed the hints.
  const absl::Status status = flags::CheckJobFlags(command, args, &flags, &set);
  if (!status.ok()) return set.Report(status);
  for (const std::string& hint : ClusterJobHints(flags)) {
    std::fprintf(stderr, "%s: hint: %s\n", set.command().c_str(), hint.c_str());
  }
  return flags.yaml.empty() ? SubmitAndFollow(flags, set, signals)
                            : RunYaml(flags, set);
}

}  // namespace

int RunClusterTrain(const std::vector<std::string>& args) {
  return RunClusterJob("train", flags::JobCommand::kTrain, args);
}
int RunClusterEvaluate(const std::vector<std::string>& args) {
  return RunClusterJob("evaluate", flags::JobCommand::kEvaluate, args);
}
int RunClusterPredict(const std::vector<std::string>& args) {
  return RunClusterJob("predict", flags::JobCommand::kPredict, args);
}

}  // namespace elasticdl::cli
