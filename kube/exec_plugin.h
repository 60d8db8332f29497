// Login programs of kubeconfig files (users[].user.exec).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/kube/cluster_config.h"

namespace elasticdl::kube {

// A token, a client certificate with its key, or both.
struct PluginCredential {
  std::string token;
  std::string client_cert_pem;
  std::string client_key_pem;
  // Wall-clock time; infinite when the program did not say.
  absl::Time expires = absl::InfiniteFuture();
};

// Parses what a program printed: an ExecCredential of `api_version`.
// UNAUTHENTICATED when it is something else; the message quotes no secret.
absl::StatusOr<PluginCredential> ParseExecCredential(
    const std::string& api_version, absl::string_view output);

// The program's environment variable KUBERNETES_EXEC_INFO.
std::string ExecInfo(const ClusterConfig& config);

// Runs config.exec and reads what it prints. UNAUTHENTICATED when it is missing
// (with its install hint), fails (with the end of its standard error), prints
// nonsense or takes longer than `timeout` (it is killed, as on CANCELLED).
absl::StatusOr<PluginCredential> RunExecPlugin(const ClusterConfig& config,
                                               absl::Duration timeout,
                                               const Cancellation* cancel);

}  // namespace elasticdl::kube
