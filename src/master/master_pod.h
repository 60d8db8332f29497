// The master's own pod on a cluster: its identity, the address for workers, the
// templates of their pods, and reporting the job's outcome to the cluster
// (docs/design/0004-kubernetes.md).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube_pod.h"

namespace elasticdl::master {

// Thread-compatible.
class MasterPod {
 public:
  struct Options {
    std::string job_name;
    std::string namespace_name = "default";
    // Of this very pod; the address is for clusters whose Service has none.
    std::string pod_name;
    std::string pod_ip;
    // The Secret, mounted: worker-pod.json, ps-pod.json and what else the
    // client left.
    std::string template_dir;
    // Where the master listens.
    int port = 0;
    kube::ConfigSource config;
    // KEY=VALUE of this process, for --populate_env_names.
    std::vector<std::string> environment;
  };

  // Asks the cluster and reads the templates. PERMISSION_DENIED names the verb
  // that the service account lacks and the command that grants it.
  static absl::StatusOr<MasterPod> Connect(const Options& options);
  // Only good for ReportOutcome; asks nothing yet.
  static absl::StatusOr<MasterPod> Attach(const Options& options);

  // host:port for workers.
  const std::string& master_address() const { return master_address_; }
  // What the pods of workers have in common.
  KubeJob job() const;
  const kube::Json& worker_template() const { return worker_template_; }
  // null when the client left none: there can be no servers then.
  const kube::Json& ps_template() const { return ps_template_; }
  // The container of a server that ends with exit code 0 is not started again.
  bool servers_end_for_good() const;
  // A client of its own: each has one transport.
  absl::StatusOr<std::unique_ptr<kube::Client>> MakeClient() const;

  // The job is over (`state`: succeeded, stopped, failed): notes it on the pod,
  // and if it failed, has the pod end as failed instead of being restarted. The
  // others end with exit code 0 and are not restarted anyway.
  absl::Status ReportOutcome(const std::string& state, int exit_code,
                             const std::string& message);

 private:
  MasterPod() = default;
  absl::Status FindPod();
  absl::Status FindAddress();
  absl::Status ReadTemplates();
  absl::StatusOr<kube::Json> ParseTemplate(const std::string& path,
                                           const std::string& text) const;
  void OwnObject(const kube::Resource& resource, const std::string& name);

  Options options_;
  kube::ClusterConfig config_;
  std::unique_ptr<kube::Client> client_;
  std::string master_address_;
  kube::Json owner_;
  kube::Json worker_template_;
  kube::Json ps_template_;
};

// Adds the variables of `environment` (KEY=VALUE) whose whole name matches
// `pattern` to every container of the pod, unless it has them.
absl::Status AddEnvironment(const std::vector<std::string>& environment,
                            const std::string& pattern, kube::Json& pod);

}  // namespace elasticdl::master
