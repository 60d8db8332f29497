#include "exec_plugin.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
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

// An unnamed file in memory: it takes any amount of output without a reader.
absl::StatusOr<Fd> MemoryFile(const char* name) {
  Fd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, "memfd_create");
  return fd;
}

std::string PathOfFd(const Fd& fd) {
  return absl::StrCat("/proc/self/fd/", fd.get());
}

// How the program ended: poll() has said that it has, or it is killed now.
siginfo_t Reap(const process::Process& process, bool killed) {
  // It leads its own session: whatever it started goes with it.
  if (killed) kill(-process.pid, SIGKILL);
  siginfo_t info = {};
  const auto id = static_cast<id_t>(process.pidfd.get());
  while (waitid(P_PIDFD, id, &info, WEXITED) != 0 && errno == EINTR) {
  }
  return info;
}

// OK when it ended by itself in time.
absl::Status WaitFor(const process::Process& process, absl::Duration timeout,
                     const Cancellation* cancel) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  while (true) {
    pollfd fds[] = {{process.pidfd.get(), POLLIN, 0},
                    {cancel == nullptr ? -1 : cancel->fd(), POLLIN, 0}};
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
    const int64_t ms = absl::ToInt64Milliseconds(left) + 1;
    const int n = poll(fds, 2, static_cast<int>(std::min<int64_t>(ms, 600000)));
    if (n < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
    if (n <= 0) continue;
    if (fds[1].revents != 0) return absl::CancelledError("cancelled");
    if (fds[0].revents != 0) return absl::OkStatus();
  }
}

std::string TailOf(const Fd& file) {
  const absl::StatusOr<std::string> text = ReadFile(PathOfFd(file));
  if (!text.ok()) return "";
  absl::string_view tail = absl::StripAsciiWhitespace(*text);
  if (tail.size() > kMaxErrorText) {
    tail.remove_prefix(tail.size() - kMaxErrorText);
  }
  return std::string(tail);
}

absl::Status StartFailed(const ExecPlugin& plugin, const absl::Status& error) {
  std::string why(error.message());
  if (absl::IsNotFound(error) && !plugin.install_hint.empty()) {
    absl::StrAppend(&why, "\n",
                    absl::StripAsciiWhitespace(plugin.install_hint));
  }
  return Failed(plugin, why);
}

absl::StatusOr<process::Process> StartPlugin(const ClusterConfig& config,
                                             const Fd& out, const Fd& err) {
  const ExecPlugin& plugin = config.exec;
  process::Options options;
  options.argv.push_back(plugin.command);
  options.argv.insert(options.argv.end(), plugin.args.begin(),
                      plugin.args.end());
  options.environment = plugin.environment;
  for (const auto& [key, value] : plugin.env) {
    options.environment.push_back(absl::StrCat(key, "=", value));
  }
  options.environment.push_back(
      absl::StrCat("KUBERNETES_EXEC_INFO=", ExecInfo(config)));
  options.output_fd = out.get();
  options.log_file = PathOfFd(err);
  return process::Start(options);
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
  return info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<PluginCredential> ParseExecCredential(
    const std::string& api_version, absl::string_view output) {
  const Json object = Json::parse(output, nullptr, false);
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
  ELASTICDL_ASSIGN_OR_RETURN(const Fd out, MemoryFile("exec-out"));
  ELASTICDL_ASSIGN_OR_RETURN(const Fd err, MemoryFile("exec-err"));
  absl::StatusOr<process::Process> process = StartPlugin(config, out, err);
  if (!process.ok()) return StartFailed(plugin, process.status());
  const absl::Status waited = WaitFor(*process, timeout, cancel);
  const siginfo_t end = Reap(*process, !waited.ok());
  if (absl::IsCancelled(waited)) return waited;
  const std::string said = TailOf(err);
  const std::string tail = said.empty() ? "" : absl::StrCat(": ", said);
  if (!waited.ok()) {
    return Failed(plugin, absl::StrCat(waited.message(), tail));
  }
  if (end.si_code != CLD_EXITED || end.si_status != 0) {
    return Failed(plugin,
                  absl::StrCat(end.si_code == CLD_EXITED ? "exit code "
                                                         : "killed by signal ",
                               end.si_status, tail));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string output, ReadFile(PathOfFd(out)));
  absl::StatusOr<PluginCredential> credential =
      ParseExecCredential(plugin.api_version, output);
  if (!credential.ok()) {
    return Failed(plugin, absl::StrCat(credential.status().message(), tail));
  }
  return credential;
}

}  // namespace elasticdl::kube
