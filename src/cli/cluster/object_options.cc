#include "cluster/object_options.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {
namespace {

// Cores, rounded up: "3" → 3, "500m" → 1.
int64_t WholeCores(const flags::Resources& resources) {
  const auto it = resources.find("cpu");
  if (it == resources.end()) return 0;
  absl::string_view text = it->second;
  const bool milli = absl::ConsumeSuffix(&text, "m");
  double cores = 0;
  if (!absl::SimpleAtod(text, &cores)) return 0;
  return static_cast<int64_t>(std::ceil(milli ? cores / 1000 : cores));
}

// Flags that only this program uses, or that are set below.
bool IsForMaster(const flags::FlagSet::Description& flag) {
  static const auto* no = new std::set<std::string>{
      "detach", "state_dir", "token_file", "job_name", "yaml"};
  if (flag.name == "worker_pod_priority") return true;
  return flag.info.group != flags::kClusterGroup && no->count(flag.name) == 0;
}

// The job's flags that are not about the cluster, and the paths in the master's
// pod.
std::vector<std::string> MasterArgs(const flags::JobFlags& flags,
                                    const flags::FlagSet& set,
                                    const std::string& name_space,
                                    int64_t worker_cores) {
  std::set<std::string> names;
  for (const flags::FlagSet::Description& flag : set.Describe()) {
    if (IsForMaster(flag)) names.insert(flag.name);
  }
  std::vector<std::string> args;
  for (const std::string& arg : set.ToArgs()) {
    if (names.count(arg.substr(2, arg.find('=') - 2)) > 0) args.push_back(arg);
  }
  if (!set.IsSet("num_threads") && worker_cores > 0) {
    // The master cannot see the workers' nodes.
    args.push_back(absl::StrCat("--num_threads=", worker_cores));
  }
  // A master whose container is restarted continues with its workers.
  if (!set.IsSet("master_timeout")) args.push_back("--master_timeout=300");
  for (const std::string& arg :
       {absl::StrCat("--job_name=", flags.job_name),
        std::string("--pod_backend=kubernetes"),
        absl::StrCat("--namespace=", name_space),
        absl::StrCat("--port=", cluster::kRpcPort),
        absl::StrCat("--http_port=", cluster::kHttpPort),
        absl::StrCat("--state_dir=", cluster::kStateDir),
        absl::StrCat("--token_file=", cluster::kSecretDir, "/",
                     cluster::kTokenKey),
        absl::StrCat("--pod_template_dir=", cluster::kSecretDir)}) {
    args.push_back(arg);
  }
  return args;
}

// What workers and parameter servers need before they know their master.
std::vector<std::string> ReplicaArgs(const flags::JobFlags& flags) {
  std::vector<std::string> args = {
      absl::StrCat("--token_file=", cluster::kSecretDir, "/",
                   cluster::kTokenKey),
      absl::StrCat("--log_level=", flags.log_level)};
  if (flags.log_format != "text") {
    args.push_back(absl::StrCat("--log_format=", flags.log_format));
  }
  if (!flags.log_file_path.empty()) {
    args.push_back(absl::StrCat("--log_file_path=", flags.log_file_path));
  }
  return args;
}

// A share of what its pod gets, so that it refuses pushes rather than be
// killed. While a snapshot is written, each page that changes is copied: of
// dense parameters all, and of rows nearly all if that takes long. Requests
// under way have an eighth of the share (ps::ServerOptions).
constexpr double kPsMemoryShare = 0.45;

std::string PsMemoryLimit(const flags::JobFlags& flags,
                          const cluster::PodOptions& pod) {
  if (!flags.ps_memory_limit.empty()) return flags.ps_memory_limit;
  const flags::Resources& most = pod.limit.empty() ? pod.request : pod.limit;
  const auto memory = most.find("memory");
  if (memory == most.end()) return "";
  const double bytes = flags::QuantityValue(memory->second) * kPsMemoryShare;
  return bytes < 0x1p20
             ? ""
             : absl::StrCat(static_cast<int64_t>(bytes / 0x1p20), "Mi");
}

// In addition: the address for workers, the log and the memory.
std::vector<std::string> PsArgs(const flags::JobFlags& flags,
                                const cluster::PodOptions& pod) {
  std::vector<std::string> args = ReplicaArgs(flags);
  // The cluster fills in the variable.
  args.push_back("--worker_address=$(MY_POD_IP)");
  args.push_back(absl::StrCat("--port=", cluster::kPsPort));
  // The name that the job's master uses when it removes old ones from a volume.
  args.push_back(
      absl::StrCat("--ps_log=", flags.ps_log.empty()
                                    ? cluster::kPsLogDir
                                    : JoinPath(flags.ps_log, flags.job_name)));
  const std::string limit = PsMemoryLimit(flags, pod);
  if (!limit.empty()) {
    args.push_back(absl::StrCat("--ps_memory_limit=", limit));
  }
  if (!flags.ps_audit.empty()) {
    args.push_back(absl::StrCat("--ps_audit=", flags.ps_audit));
  }
  return args;
}

// Without a limit the request is the limit. But the default request of a worker
// is low, so that two fit on a node with two cores; each may use one.
constexpr char kWorkerCpuLimit[] = "1";

absl::StatusOr<cluster::PodOptions> MakePodOptions(const flags::FlagSet& set,
                                                   const std::string& type,
                                                   const std::string& request,
                                                   const std::string& limit) {
  cluster::PodOptions pod;
  ELASTICDL_ASSIGN_OR_RETURN(pod.request, flags::ParseResources(request));
  ELASTICDL_ASSIGN_OR_RETURN(pod.limit, flags::ParseResources(limit));
  if (set.IsSet(absl::StrCat(type, "_resource_request"))) return pod;
  if (pod.limit.empty() && type == "worker") {
    pod.limit = pod.request;
    pod.limit["cpu"] = kWorkerCpuLimit;
  }
  for (auto& [name, quantity] : pod.request) {
    const auto most = pod.limit.find(name);
    if (most != pod.limit.end() &&
        flags::QuantityValue(quantity) > flags::QuantityValue(most->second)) {
      quantity = most->second;
    }
  }
  return pod;
}

absl::Status FillPods(const flags::JobFlags& flags, const flags::FlagSet& set,
                      cluster::JobOptions* options) {
  const std::string& worker_image =
      flags.worker_image.empty() ? flags.image : flags.worker_image;
  ELASTICDL_ASSIGN_OR_RETURN(
      options->master,
      MakePodOptions(set, "master", flags.master_resource_request,
                     flags.master_resource_limit));
  ELASTICDL_ASSIGN_OR_RETURN(
      options->worker,
      MakePodOptions(set, "worker", flags.worker_resource_request,
                     flags.worker_resource_limit));
  ELASTICDL_ASSIGN_OR_RETURN(
      options->ps, MakePodOptions(set, "ps", flags.ps_resource_request,
                                  flags.ps_resource_limit));
  options->master.image = flags.image;
  options->worker.image = options->ps.image = worker_image;
  // The pod manager chooses the priority of each worker.
  options->master.priority_class = flags.master_pod_priority;
  options->ps.priority_class = flags.ps_pod_priority;
  const bool given = set.IsSet("restart_policy");
  // A program that is restarted in its pod finds the files that it wrote.
  options->master.restart_policy = given ? flags.restart_policy : "OnFailure";
  options->ps.restart_policy = options->master.restart_policy;
  options->worker.restart_policy = flags.restart_policy;
  const flags::Resources& cores = options->worker.limit.empty()
                                      ? options->worker.request
                                      : options->worker.limit;
  options->master.command = {"elasticdl-master"};
  options->master.args =
      MasterArgs(flags, set, options->namespace_name, WholeCores(cores));
  if (flags.RunsJobCommand()) {
    options->worker.command = {"/bin/bash", "-c", flags.job_command};
  } else {
    options->worker.command = {"elasticdl-worker"};
    options->worker.args = ReplicaArgs(flags);
  }
  options->ps.command = {"elasticdl-ps"};
  options->ps.args = PsArgs(flags, options->ps);
  return absl::OkStatus();
}

bool IsBelow(const std::string& path, const std::string& folder) {
  return path == folder ||
         absl::StartsWith(path, absl::EndsWith(folder, "/")
                                    ? folder
                                    : absl::StrCat(folder, "/"));
}

}  // namespace

absl::StatusOr<cluster::JobOptions> MakeClusterJobOptions(
    const flags::JobFlags& flags, const flags::FlagSet& set,
    const std::string& name_space, const std::string& token) {
  cluster::JobOptions options;
  options.job_name = flags.job_name;
  options.namespace_name = name_space;
  options.token = token;
  options.image_pull_policy = flags.image_pull_policy;
  options.populate_env_names = flags.populate_env_names;
  ELASTICDL_ASSIGN_OR_RETURN(options.envs, flags::ParseEnvs(flags.envs));
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<flags::VolumeMount> volumes,
                             flags::ParseVolumes(flags.volume));
  for (const flags::VolumeMount& volume : volumes) {
    options.volumes.push_back({volume.claim_name, volume.host_path, volume.type,
                               volume.mount_path, volume.sub_path});
  }
  ELASTICDL_RETURN_IF_ERROR(FillPods(flags, set, &options));
  return options;
}

std::vector<std::string> ClusterJobHints(const flags::JobFlags& flags) {
  const auto volumes = flags::ParseVolumes(flags.volume);
  if (!volumes.ok()) return {};
  const std::pair<const char*, const std::string&> kResults[] = {
      {"checkpoint_dir", flags.checkpoint_dir},
      {"output", flags.output},
      {"prediction_output_dir", flags.prediction_output_dir},
      {"tensorboard_log_dir", flags.tensorboard_log_dir},
      {"timeline", flags.timeline},
      {"ledger_audit", flags.ledger_audit},
      {"event_log", flags.event_log},
      {"ps_log", flags.ps_log},
      {"ps_audit", flags.ps_audit}};
  std::vector<std::string> hints;
  for (const auto& [name, path] : kResults) {
    // What goes to the log of the pod is meant to.
    bool kept = path.empty() || path == "/dev/stdout" || path == "/dev/stderr";
    for (const flags::VolumeMount& volume : *volumes) {
      kept = kept || IsBelow(path, volume.mount_path);
    }
    if (kept) continue;
    hints.push_back(absl::StrCat("--", name, "=", path,
                                 " is in no --volume: it ends with its pod"));
  }
  return hints;
}

}  // namespace elasticdl::cli
