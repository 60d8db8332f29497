// Which API server to use, and with which credentials: from kubeconfig files,
// or from the files that a pod has of its own account.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// A program that prints an ExecCredential (GKE's gcloud plugin, aws, …).
struct ExecPlugin {
  std::string api_version;
  std::string command;
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string install_hint;
  bool provide_cluster_info = false;
  // KEY=VALUE of this process (ConfigSource::environment); `env` overrides it.
  std::vector<std::string> environment;
};

// One cluster and one user. At most one kind of credential is set.
struct ClusterConfig {
  // https://host:port[/prefix]; http is for tests and kubectl proxy.
  std::string server;
  // PEM; empty = the system's.
  std::string ca_pem;
  std::string tls_server_name;
  bool insecure_skip_tls_verify = false;
  std::string proxy_url;
  // PEM.
  std::string client_cert_pem;
  std::string client_key_pem;
  std::string token;
  // Its content changes: it is read again each minute and after a 401.
  std::string token_file;
  std::string username;
  std::string password;
  ExecPlugin exec;  // command empty = none
  // Of the context or of the pod; "default" when neither names one.
  std::string namespace_name = "default";
  // For people: "context minikube of ~/.kube/config", "the pod's own account".
  std::string origin;
};

struct ConfigSource {
  // $KUBECONFIG: files joined by ':'; empty = not set.
  std::string kubeconfig;
  std::string home;
  // $KUBERNETES_SERVICE_HOST and _PORT; empty = not inside a pod.
  std::string service_host;
  std::string service_port;
  // Other than the current one; empty = the current one.
  std::string context;
  // --force_use_kube_config_file.
  bool force_kubeconfig = false;
  // Where a pod's credentials are mounted.
  std::string account_dir = "/var/run/secrets/kubernetes.io/serviceaccount";
  // KEY=VALUE of this process, for login programs, which need PATH and HOME.
  std::vector<std::string> environment;
};

// Inside a pod its own account, unless forced; else the kubeconfig files,
// merged as kubectl merges them (the first file that has an entry wins; paths
// are relative to their file). NOT_FOUND when there is neither (the message
// says where it looked), INVALID_ARGUMENT with file and entry for a bad one.
absl::StatusOr<ClusterConfig> LoadClusterConfig(const ConfigSource& source);

// The transport of this build. INVALID_ARGUMENT for credentials that cannot be
// used.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    const ClusterConfig& config);

}  // namespace elasticdl::kube
