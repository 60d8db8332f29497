#include "cluster/connection.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/cluster/access.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::cli {

absl::StatusOr<ClusterConnection> ConnectCluster(
    const std::string& name_space, bool force_use_kube_config_file) {
  kube::ConfigSource source;
  source.kubeconfig = flags::GetEnv("KUBECONFIG");
  source.home = flags::HomeDir();
  source.service_host = flags::GetEnv("KUBERNETES_SERVICE_HOST");
  source.service_port = flags::GetEnv("KUBERNETES_SERVICE_PORT");
  source.force_kubeconfig = force_use_kube_config_file;
  source.environment = flags::Environment();
  ELASTICDL_ASSIGN_OR_RETURN(const kube::ClusterConfig config,
                             kube::LoadClusterConfig(source));
  ELASTICDL_ASSIGN_OR_RETURN(auto transport, kube::MakeTransport(config));
  kube::Client::Options options;
  options.namespace_name =
      name_space.empty() ? config.namespace_name : name_space;
  ClusterConnection cluster;
  cluster.client =
      std::make_unique<kube::Client>(std::move(transport), options);
  cluster.server = config.server;
  cluster.origin = config.origin;
  return cluster;
}

absl::Status CheckNamespace(kube::Client& client) {
  const absl::Status status =
      client.Get(kube::Namespaces(), client.namespace_name()).status();
  return absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
}

absl::Status ExplainClusterError(const absl::Status& status,
                                 const ClusterConnection& cluster) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
      return absl::PermissionDeniedError(
          cluster::ExplainForbidden(message, cluster::Party::kClient));
    case absl::StatusCode::kUnauthenticated:
      return absl::UnauthenticatedError(
          absl::StrCat(message, " (credentials of ", cluster.origin,
                       "; does kubectl get pods work?)"));
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return absl::Status(
          status.code(),
          absl::StrCat("no answer from the cluster at ", cluster.server, " (",
                       cluster.origin, "): ", message));
    case absl::StatusCode::kNotFound:
      // The namespace itself, or what was to be created in it.
      if (absl::StrContains(message, "namespaces \"")) {
        const std::string& name = cluster.client->namespace_name();
        return absl::NotFoundError(
            absl::StrCat("there is no namespace ", name, " at ", cluster.server,
                         "; create it (kubectl create namespace ", name,
                         ") or give another --namespace"));
      }
      return status;
    default:
      return status;
  }
}

}  // namespace elasticdl::cli
