// Reads the configuration from the pod that we run in, or from files.
#include "elasticdl/kube/cluster_config.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "kubeconfig.h"

namespace elasticdl::kube {
namespace {

std::string TokenFile(const ConfigSource& source) {
  return JoinPath(source.account_dir, "token");
}

bool InPod(const ConfigSource& source) {
  return !source.service_host.empty() && !source.service_port.empty() &&
         FileExists(TokenFile(source));
}

absl::StatusOr<ClusterConfig> FromPod(const ConfigSource& source) {
  ClusterConfig config;
  config.origin = "the pod's own account";
  const bool ipv6 = absl::StrContains(source.service_host, ':');
  config.server = absl::StrCat("https://", ipv6 ? "[" : "", source.service_host,
                               ipv6 ? "]" : "", ":", source.service_port);
  config.token_file = TokenFile(source);
  ELASTICDL_ASSIGN_OR_RETURN(config.ca_pem,
                             ReadFile(JoinPath(source.account_dir, "ca.crt")));
  const absl::StatusOr<std::string> namespace_name =
      ReadFile(JoinPath(source.account_dir, "namespace"));
  if (namespace_name.ok()) {
    const auto stripped = absl::StripAsciiWhitespace(*namespace_name);
    if (!stripped.empty()) config.namespace_name = std::string(stripped);
  }
  return config;
}

std::vector<std::string> Files(const ConfigSource& source) {
  if (!source.kubeconfig.empty()) {
    return absl::StrSplit(source.kubeconfig, ':', absl::SkipEmpty());
  }
  if (source.home.empty()) return {};
  return {JoinPath(source.home, ".kube/config")};
}

absl::Status NothingFound(const ConfigSource& source,
                          const absl::Status& kubeconfig) {
  return absl::NotFoundError(absl::StrCat(
      "no Kubernetes cluster is configured: ", kubeconfig.message(),
      source.service_host.empty()
          ? "; not inside a pod (KUBERNETES_SERVICE_HOST is not set)"
          : absl::StrCat("; no account of this pod in ", source.account_dir),
      ". Set KUBECONFIG or create ~/.kube/config"));
}

}  // namespace

absl::StatusOr<ClusterConfig> LoadClusterConfig(const ConfigSource& source) {
  if (!source.force_kubeconfig && InPod(source)) return FromPod(source);
  absl::StatusOr<ClusterConfig> config =
      LoadKubeconfig(Files(source), source.context);
  if (absl::IsNotFound(config.status())) {
    return NothingFound(source, config.status());
  }
  if (!config.ok()) return config;
  config->exec.environment = source.environment;
  if (source.environment.empty() && !source.home.empty()) {
    config->exec.environment = {absl::StrCat("HOME=", source.home)};
  }
  return config;
}

}  // namespace elasticdl::kube
