// The objects of a job, from the inside out: environment, volumes, container,
// pod, Service, Secret. Only fields that Kubernetes 1.20 and present versions
// know.
#include "elasticdl/cluster/job_objects.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cluster {
namespace {

// Names of volumes are DNS labels.
constexpr size_t kMaxLabel = 63;
// Files of a Secret belong to root; a user that the image names must read them.
constexpr int kReadableByAll = 0444;
// A worker that is told to go finishes its step and leaves the world.
constexpr int kReplicaGraceSeconds = 30;
constexpr char kSecretVolume[] = "elasticdl-job";
constexpr char kStateVolume[] = "elasticdl-state";

Json FieldVariable(const char* name, const char* field) {
  return {{"name", name},
          {"valueFrom",
           {{"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", field}}}}}};
}

// `<pod>-volume-<n>`; the end of a long pod name is cut.
std::string VolumeName(const std::string& pod, size_t index) {
  const std::string suffix = absl::StrCat("-volume-", index);
  std::string name = pod.substr(0, kMaxLabel - suffix.size());
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name + suffix;
}

// Volumes and mounts of one pod.
struct Storage {
  Json volumes = Json::array();
  Json mounts = Json::array();
};

Json VolumeSource(const std::string& name, const Volume& volume) {
  if (!volume.claim_name.empty()) {
    return {{"name", name},
            {"persistentVolumeClaim", {{"claimName", volume.claim_name}}}};
  }
  Json path = {{"path", volume.host_path}};
  if (!volume.type.empty()) path["type"] = volume.type;
  return {{"name", name}, {"hostPath", std::move(path)}};
}

void AddUserVolumes(const std::string& pod, const std::vector<Volume>& volumes,
                    Storage* storage) {
  std::map<std::string, std::string> names;
  for (const Volume& volume : volumes) {
    const std::string key = volume.claim_name.empty()
                                ? absl::StrCat("host ", volume.host_path)
                                : absl::StrCat("claim ", volume.claim_name);
    const auto [it, is_new] =
        names.try_emplace(key, VolumeName(pod, names.size()));
    if (is_new) storage->volumes.push_back(VolumeSource(it->second, volume));
    Json mount = {{"name", it->second}, {"mountPath", volume.mount_path}};
    if (!volume.sub_path.empty()) mount["subPath"] = volume.sub_path;
    storage->mounts.push_back(std::move(mount));
  }
}

// The master sees the whole Secret, others only the token in it.
void AddSecretVolume(const JobOptions& options, bool only_token,
                     Storage* storage) {
  Json secret = {{"secretName", SecretName(options.job_name)},
                 {"defaultMode", kReadableByAll}};
  if (only_token) {
    secret["items"] = Json::array({{{"key", kTokenKey}, {"path", kTokenKey}}});
  }
  storage->volumes.push_back({{"name", kSecretVolume}, {"secret", secret}});
  storage->mounts.push_back(
      {{"name", kSecretVolume}, {"mountPath", kSecretDir}, {"readOnly", true}});
}

// A folder that outlives the container, but not the pod.
void AddStateVolume(Storage* storage) {
  storage->volumes.push_back(
      {{"name", kStateVolume}, {"emptyDir", Json::object()}});
  storage->mounts.push_back({{"name", kStateVolume}, {"mountPath", kStateDir}});
}

Json ResourcesOf(const PodOptions& pod) {
  Json requests = Json::object();
  for (const auto& [name, quantity] : pod.request) requests[name] = quantity;
  Json limits = Json::object();
  for (const auto& [name, quantity] : pod.limit) limits[name] = quantity;
  for (const auto& [name, quantity] : pod.request) {
    // GPUs and the like cannot be shared: the server wants a limit for them.
    const bool exclusive = absl::StrContains(name, '/');
    if (pod.limit.empty() || (exclusive && !limits.contains(name))) {
      limits[name] = quantity;
    }
  }
  return {{"requests", std::move(requests)}, {"limits", std::move(limits)}};
}

Json MakeContainer(const JobOptions& options, const PodOptions& pod,
                   const std::string& type, Json mounts) {
  Json container = {{"name", type},
                    {"image", pod.image},
                    {"imagePullPolicy", options.image_pull_policy},
                    {"command", pod.command},
                    {"args", pod.args},
                    {"resources", ResourcesOf(pod)},
                    {"volumeMounts", std::move(mounts)},
                    // The end of the log tells more than nothing.
                    {"terminationMessagePolicy", "FallbackToLogsOnError"}};
  SetEnv(FieldVariable("MY_POD_IP", "status.podIP"), &container);
  SetEnv(FieldVariable("POD_NAME", "metadata.name"), &container);
  SetEnv(FieldVariable("NODE_NAME", "spec.nodeName"), &container);
  for (const auto& [name, value] : options.envs) {
    SetEnv({{"name", name}, {"value", value}}, &container);
  }
  return container;
}

Json MakePod(const JobOptions& options, const PodOptions& pod,
             const std::string& type, const std::string& name,
             const Storage& storage) {
  Json labels = JobLabels(options.job_name);
  labels[kTypeLabel] = type;
  Json spec = {
      {"containers",
       Json::array({MakeContainer(options, pod, type, storage.mounts)})},
      {"volumes", storage.volumes},
      {"restartPolicy", pod.restart_policy},
      // A namespace may have thousands of Services.
      {"enableServiceLinks", false}};
  if (!pod.priority_class.empty()) {
    spec["priorityClassName"] = pod.priority_class;
  }
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", name},
            {"namespace", options.namespace_name},
            {"labels", std::move(labels)}}},
          {"spec", std::move(spec)}};
}

// A master that hangs is started again; it goes on with its journal. The page
// is there when the data and the checkpoint were found, which may take minutes.
void AddProbes(Json* container) {
  const auto probe = [](const char* path, int period, int failures) {
    return Json({{"httpGet", {{"path", path}, {"port", "http"}}},
                 {"periodSeconds", period},
                 {"timeoutSeconds", 5},
                 {"failureThreshold", failures}});
  };
  (*container)["startupProbe"] = probe("/healthz", 2, 900);
  (*container)["livenessProbe"] = probe("/healthz", 20, 3);
  (*container)["readinessProbe"] = probe("/readyz", 5, 3);
}

Json MakeMasterPod(const JobOptions& options) {
  const std::string name = MasterName(options.job_name);
  Storage storage;
  AddSecretVolume(options, /*only_token=*/false, &storage);
  AddStateVolume(&storage);
  AddUserVolumes(name, options.volumes, &storage);
  Json pod = MakePod(options, options.master, "master", name, storage);
  pod["metadata"]["labels"][kIndexLabel] = "0";
  pod["spec"]["containers"][0]["ports"] =
      Json::array({{{"name", "rpc"}, {"containerPort", kRpcPort}},
                   {{"name", "http"}, {"containerPort", kHttpPort}}});
  AddProbes(&pod["spec"]["containers"][0]);
  return pod;
}

// A worker or a parameter server: the master fills in the rest.
Json MakeReplicaTemplate(const JobOptions& options, const PodOptions& pod,
                         const std::string& type, bool has_state) {
  const std::string name =
      absl::StrCat("elasticdl-", type, "-", options.job_name);
  Storage storage;
  AddSecretVolume(options, /*only_token=*/true, &storage);
  if (has_state) AddStateVolume(&storage);
  AddUserVolumes(name, options.volumes, &storage);
  Json made = MakePod(options, pod, type, name, storage);
  made["spec"]["terminationGracePeriodSeconds"] = kReplicaGraceSeconds;
  // Only the master talks to the cluster.
  made["spec"]["automountServiceAccountToken"] = false;
  return made;
}

Json MakeWorkerTemplate(const JobOptions& options) {
  return MakeReplicaTemplate(options, options.worker, "worker",
                             /*has_state=*/false);
}

Json MakePsTemplate(const JobOptions& options) {
  Json pod = MakeReplicaTemplate(options, options.ps, "ps", /*has_state=*/true);
  pod["spec"]["containers"][0]["ports"] =
      Json::array({{{"name", "ps"}, {"containerPort", kPsPort}}});
  return pod;
}

Json MakeService(const JobOptions& options) {
  const auto port = [](const char* name, int number) {
    return Json({{"name", name},
                 {"port", number},
                 {"targetPort", number},
                 {"protocol", "TCP"}});
  };
  return {
      {"apiVersion", "v1"},
      {"kind", "Service"},
      {"metadata",
       {{"name", MasterName(options.job_name)},
        {"namespace", options.namespace_name},
        {"labels", JobLabels(options.job_name)}}},
      {"spec",
       {{"type", "ClusterIP"},
        {"selector", {{kJobLabel, options.job_name}, {kTypeLabel, "master"}}},
        {"ports",
         Json::array({port("rpc", kRpcPort), port("http", kHttpPort)})}}}};
}

absl::Status CheckOptions(const JobOptions& options) {
  if (options.job_name.empty())
    return absl::InvalidArgumentError("a job on a cluster needs a name");
  if (options.namespace_name.empty())
    return absl::InvalidArgumentError("the namespace is empty");
  if (options.token.empty())
    return absl::InvalidArgumentError("the job's token is empty");
  if (options.master.image.empty() || options.worker.image.empty()) {
    return absl::InvalidArgumentError("a job on a cluster needs an image");
  }
  std::set<std::string> paths = {kSecretDir, kStateDir};
  for (const Volume& volume : options.volumes) {
    if (!paths.insert(volume.mount_path).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--volume: two volumes at mount_path=", volume.mount_path,
          volume.mount_path == kSecretDir || volume.mount_path == kStateDir
              ? " (ElasticDL's own one is there)"
              : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Json JobLabels(const std::string& job_name) {
  // The second is the name that the first versions of ElasticDL used; people
  // select by it.
  return {{"app", "elasticdl"},
          {"elasticdl_job_name", job_name},
          {kJobLabel, job_name}};
}

std::string MasterName(const std::string& job_name) {
  return absl::StrCat("elasticdl-master-", job_name);
}

std::string SecretName(const std::string& job_name) {
  return absl::StrCat("elasticdl-job-", job_name);
}

std::string JobSelector(const std::string& job_name) {
  return absl::StrCat(kJobLabel, "=", job_name);
}

std::string MasterSelector(const std::string& job_name) {
  return absl::StrCat(JobSelector(job_name), ",", kTypeLabel, "=master");
}

std::string AllMastersSelector() {
  return absl::StrCat("app=elasticdl,", kTypeLabel, "=master");
}

absl::StatusOr<JobObjects> MakeJobObjects(const JobOptions& options) {
  ELASTICDL_RETURN_IF_ERROR(CheckOptions(options));
  JobObjects objects;
  objects.service = MakeService(options);
  objects.master_pod = MakeMasterPod(options);
  objects.worker_pod = MakeWorkerTemplate(options);
  objects.ps_pod = MakePsTemplate(options);
  return objects;
}

Json MakeSecret(const JobOptions& options, const JobObjects& objects) {
  Json data = {{kTokenKey, options.token},
               // On lines of their own, for people who edit a --yaml file.
               {kWorkerPodKey, JsonText(objects.worker_pod, 2)},
               {kPsPodKey, JsonText(objects.ps_pod, 2)}};
  if (!options.populate_env_names.empty()) {
    data[kPopulateEnvNamesKey] = options.populate_env_names;
  }
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"type", "Opaque"},
          {"metadata",
           {{"name", SecretName(options.job_name)},
            {"namespace", options.namespace_name},
            {"labels", JobLabels(options.job_name)}}},
          // Applied a second time with another token it is refused, not
          // changed: the job's workers and `elasticdl` would be locked out.
          {"immutable", true},
          {"stringData", std::move(data)}};
}

Json OwnerPatch(const Json& pod) {
  const Json metadata = pod.value("metadata", Json::object());
  const Json owner = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"name", metadata.value("name", "")},
                      {"uid", metadata.value("uid", "")}};
  return {{"metadata", {{"ownerReferences", Json::array({owner})}}}};
}

void SetEnv(const Json& variable, Json* container) {
  Json& all = (*container)["env"];
  if (!all.is_array()) all = Json::array();
  for (Json& known : all) {
    if (known.is_object() && known.contains("name") &&
        known["name"] == variable["name"]) {
      known = variable;
      return;
    }
  }
  all.push_back(variable);
}

}  // namespace elasticdl::cluster
