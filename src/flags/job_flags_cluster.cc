// Declaration of the flags that act on a Kubernetes cluster.
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr const char* kCluster = kClusterGroup;

void AddResources(JobFlags* f, FlagSet* set) {
  const struct {
    const char* name;
    std::string* target;
    const char* help;
  } kResources[] = {
      {"master_resource_request", &f->master_resource_request,
       "Resources of the master: cpu=, memory=, disk=, gpu=, <vendor>/gpu=."},
      {"master_resource_limit", &f->master_resource_limit,
       "Their limit; default: the request."},
      {"worker_resource_request", &f->worker_resource_request,
       "Resources of each worker."},
      {"worker_resource_limit", &f->worker_resource_limit,
       "Their limit; default: the request, or one core."},
      {"ps_resource_request", &f->ps_resource_request,
       "Resources of each parameter server."},
      {"ps_resource_limit", &f->ps_resource_limit,
       "Their limit; default: the request."},
  };
  for (const auto& one : kResources) {
    set->Add(one.name, one.target,
             Info(kCluster, one.help).Value("RES").Grammar(ParseResources));
  }
}

absl::Status CheckClassName(const std::string& text) {
  return CheckKubeName(text, 253, true);
}

void AddPriorities(JobFlags* f, FlagSet* set) {
  set->Add("master_pod_priority", &f->master_pod_priority,
           Info(kCluster, "PriorityClass of the master.")
               .Value("CLASS")
               .Check(CheckClassName));
  set->Add("worker_pod_priority", &f->worker_pod_priority,
           Info(kCluster,
                "Of the workers: high, low, a fraction (0.5: the first half "
                "high, the rest low), or a PriorityClass.")
               .Value("CLASS")
               .Grammar(ParseWorkerPriority));
  set->Add("ps_pod_priority", &f->ps_pod_priority,
           Info(kCluster, "PriorityClass of the parameter servers.")
               .Value("CLASS")
               .Check(CheckClassName));
}

}  // namespace

void AddClusterFlags(JobFlags* f, FlagSet* set) {
  set->Add("image", &f->image,
           Info(kCluster,
                "Image of the job. Given: the job runs on a cluster; without "
                "it on this machine.")
               .Value("IMAGE")
               .Check(CheckImageName)
               .Alias({"image_name"}));
  set->Add("worker_image", &f->worker_image,
           Info(kCluster,
                "Image of workers and parameter servers; default: --image.")
               .Value("IMAGE")
               .Check(CheckImageName));
  set->Add("namespace", &f->name_space,
           Info(kCluster,
                "Kubernetes namespace; when it is not given, the kubeconfig's "
                "if that names one.")
               .Value("NAME")
               .Check([](const std::string& text) {
                 return CheckKubeName(text, 63, false);
               }));
  AddResources(f, set);
  AddPriorities(f, set);
  set->Add("volume", &f->volume,
           Info(kCluster,
                "claim_name=c,mount_path=/data or host_path=/d,type=Directory,"
                "mount_path=/d (and sub_path=); several joined by ';'.")
               .Value("VOLUMES")
               .Grammar(ParseVolumes));
  set->Add("image_pull_policy", &f->image_pull_policy,
           Info(kCluster, "When nodes pull the image.")
               .Value("POLICY")
               .Choices({"Never", "IfNotPresent", "Always"}));
  set->Add("restart_policy", &f->restart_policy,
           Info(kCluster,
                "Of all pods; not given: OnFailure for master and servers.")
               .Value("POLICY")
               .Choices({"Never", "OnFailure", "Always"}));
  set->Add("envs", &f->envs,
           Info(kCluster,
                "Environment of all pods: A=x,B=y. Values may hold '=' and "
                "commas; \\, where NAME= follows.")
               .Value("ENVS")
               .Grammar(ParseEnvs));
  set->Add(
      "populate_env_names", &f->populate_env_names,
      Info(kCluster, "Copy the master's variables whose whole name matches.")
          .Value("REGEX")
          .Check(CheckRegex));
  set->Add("cluster_spec", &f->cluster_spec,
           Info(kCluster,
                "File with additions to pods and services: YAML or JSON with "
                "the keys of --cluster_spec_json, or Python.")
               .Value("FILE"));
  set->Add("cluster_spec_json", &f->cluster_spec_json,
           Info(kCluster,
                "The same as JSON: pod_spec, master_pod_spec, "
                "worker_pod_spec, ps_pod_spec, service_spec.")
               .Value("JSON")
               .Check(CheckClusterSpecJson));
  set->Add("yaml", &f->yaml,
           Info(kCluster,
                "Write the job's objects here (- = standard output) and submit "
                "nothing.")
               .Value("FILE"));
  set->Add("force_use_kube_config_file", &f->force_use_kube_config_file,
           Info(kCluster, "Use ~/.kube/config even inside a cluster."));
  set->Add("extra_pypi_index", &f->extra_pypi_index,
           Info(kCluster, "").Hidden().Value("URL"));
}

}  // namespace elasticdl::flags
