#include "exec_plugin.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/process.h"

namespace elasticdl::kube {
namespace {

// The end of what the program said on standard error, for one log line.
constexpr size_t kMaxErrorText = 2000;

absl::Status Failed(const ExecPlugin& plugin, absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("login program ", plugin.command, ": ", why));
}

absl::Status RunFailed(const ExecPlugin& plugin, const absl::Status& error) {
  std::string why(error.message());
  if (absl::IsNotFound(error) && !plugin.install_hint.empty()) {
    absl::StrAppend(&why, "\n",
                    absl::StripAsciiWhitespace(plugin.install_hint));
  }
  return Failed(plugin, why);
}

process::RunOptions MakeRun(const ClusterConfig& config, absl::Duration timeout,
                            const Cancellation* cancel) {
  const ExecPlugin& plugin = config.exec;
  process::RunOptions options;
  options.argv.push_back(plugin.command);
  options.argv.insert(options.argv.end(), plugin.args.begin(),
                      plugin.args.end());
  options.environment = plugin.environment;
  for (const auto& [key, value] : plugin.env) {
    options.environment.push_back(absl::StrCat(key, "=", value));
  }
  options.environment.push_back(
      absl::StrCat("KUBERNETES_EXEC_INFO=", ExecInfo(config)));
  options.timeout = timeout;
  if (cancel != nullptr) options.cancel_fd = cancel->fd();
  return options;
}

}  // namespace

std::string ExecInfo(const ClusterConfig& config) {
  nlohmann::json info = {{"apiVersion", config.exec.api_version},
                         {"kind", "ExecCredential"},
                         {"spec", {{"interactive", false}}}};
  if (config.exec.provide_cluster_info) {
    nlohmann::json cluster = {{"server", config.server}};
    if (!config.tls_server_name.empty()) {
      cluster["tls-server-name"] = config.tls_server_name;
    }
    if (config.insecure_skip_tls_verify) {
      cluster["insecure-skip-tls-verify"] = true;
    }
    if (!config.ca_pem.empty()) {
      cluster["certificate-authority-data"] = absl::Base64Escape(config.ca_pem);
    }
    if (!config.proxy_url.empty()) cluster["proxy-url"] = config.proxy_url;
    info["spec"]["cluster"] = std::move(cluster);
  }
  return JsonText(info);
}

absl::StatusOr<PluginCredential> ParseExecCredential(
    const std::string& api_version, absl::string_view output) {
  const Json object = ParseJson(output);
  if (TextAt(object, "/kind") != "ExecCredential") {
    return absl::UnauthenticatedError("printed no ExecCredential");
  }
  const std::string printed = TextAt(object, "/apiVersion");
  if (printed != api_version) {
    return absl::UnauthenticatedError(
        absl::StrCat("printed an ExecCredential of version \"", printed,
                     "\", the kubeconfig asks for \"", api_version, "\""));
  }
  PluginCredential credential;
  credential.token = TextAt(object, "/status/token");
  credential.client_cert_pem = TextAt(object, "/status/clientCertificateData");
  credential.client_key_pem = TextAt(object, "/status/clientKeyData");
  if (credential.client_cert_pem.empty() != credential.client_key_pem.empty()) {
    return absl::UnauthenticatedError(
        "printed only one of clientCertificateData and clientKeyData");
  }
  if (credential.token.empty() && credential.client_cert_pem.empty()) {
    return absl::UnauthenticatedError(
        "printed neither a token nor a client certificate");
  }
  const std::string expires = TextAt(object, "/status/expirationTimestamp");
  std::string error;
  if (!expires.empty() && !absl::ParseTime(absl::RFC3339_full, expires,
                                           &credential.expires, &error)) {
    return absl::UnauthenticatedError(
        absl::StrCat("printed a bad expirationTimestamp \"", expires, "\""));
  }
  return credential;
}

absl::StatusOr<PluginCredential> RunExecPlugin(const ClusterConfig& config,
                                               absl::Duration timeout,
                                               const Cancellation* cancel) {
  const ExecPlugin& plugin = config.exec;
  const absl::StatusOr<process::RunResult> run =
      process::Run(MakeRun(config, timeout, cancel));
  if (absl::IsCancelled(run.status())) return absl::CancelledError("cancelled");
  if (!run.ok()) return RunFailed(plugin, run.status());
  const std::string said = process::LastWords(run->error, kMaxErrorText);
  const std::string tail = said.empty() ? "" : absl::StrCat(": ", said);
  if (run->code != 0) {
    return Failed(plugin, absl::StrCat(run->HowItEnded(), tail));
  }
  absl::StatusOr<PluginCredential> credential =
      ParseExecCredential(plugin.api_version, run->output);
  if (!credential.ok()) {
    return Failed(plugin, absl::StrCat(credential.status().message(), tail));
  }
  return credential;
}

}  // namespace elasticdl::kube
