#include "http_transport.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/http/url.h"

namespace elasticdl::kube {
namespace {

absl::Status CheckPem(const std::string& pem, const char* what,
                      const char* marker) {
  if (pem.empty() || absl::StrContains(pem, marker)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is not PEM: no line with \"", marker, "\""));
}

absl::Status CheckPems(const ClusterConfig& config) {
  ELASTICDL_RETURN_IF_ERROR(CheckPem(config.ca_pem, "certificate authority",
                                     "-----BEGIN CERTIFICATE-----"));
  ELASTICDL_RETURN_IF_ERROR(CheckPem(config.client_cert_pem,
                                     "client certificate",
                                     "-----BEGIN CERTIFICATE-----"));
  ELASTICDL_RETURN_IF_ERROR(
      CheckPem(config.client_key_pem, "client key", "PRIVATE KEY-----"));
  if (config.client_cert_pem.empty() != config.client_key_pem.empty()) {
    return absl::InvalidArgumentError(
        "a client certificate and its key only make sense together");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Response> HttpTransport::Call(const Request& request,
                                             absl::Duration timeout,
                                             const Cancellation* cancel) {
  http::Limits limits;
  limits.total = timeout;
  return Run(request, limits, cancel, nullptr);
}

absl::StatusOr<Response> HttpTransport::Stream(const Request& request,
                                               absl::Duration idle_timeout,
                                               const Cancellation* cancel,
                                               const ChunkSink& chunk) {
  http::Limits limits;
  limits.silence = idle_timeout;
  return Run(request, limits, cancel, &chunk);
}

absl::StatusOr<Response> HttpTransport::Run(const Request& request,
                                            const http::Limits& limits,
                                            const Cancellation* cancel,
                                            const ChunkSink* sink) {
  ELASTICDL_ASSIGN_OR_RETURN(std::shared_ptr<const Identity> identity,
                             credentials_.Get(cancel));
  absl::StatusOr<Response> response =
      Once(request, *identity, limits, cancel, sink);
  if (!response.ok() || response->code != 401 || !credentials_.renewable()) {
    return response;
  }
  ELASTICDL_ASSIGN_OR_RETURN(identity, credentials_.Renew(*identity, cancel));
  return Once(request, *identity, limits, cancel, sink);
}

absl::StatusOr<ApiServer> ApiServerOf(const ClusterConfig& config) {
  const absl::Status checked = CheckPems(config);
  if (!checked.ok()) return Annotate(checked, config.origin);
  const absl::StatusOr<http::Url> url = http::ParseUrl(config.server);
  if (!url.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.origin, ": server ", url.status().message()));
  }
  const std::string address = absl::StrCat(url->host, ":", url->port);
  ApiServer server;
  server.name = absl::StrCat(url->scheme, "://", address);
  server.http.proxy = config.proxy_url;
  server.http.ca_pem = config.ca_pem;
  server.http.verify = !config.insecure_skip_tls_verify;
  if (config.tls_server_name.empty()) {
    server.http.base_url = absl::StrCat(server.name, url->path);
    return server;
  }
  // The certificate names another host than the one to connect to: the URL has
  // the certificate's.
  server.http.base_url = absl::StrCat(
      url->scheme, "://", config.tls_server_name, ":", url->port, url->path);
  server.http.connect_to = address;
  server.host_header = address;
  return server;
}

http::Login LoginOf(const Identity& identity) {
  http::Login login;
  login.cert_pem = identity.client_cert_pem;
  login.key_pem = identity.client_key_pem;
  // A token, which is a header, comes before a password.
  if (identity.token.empty()) {
    login.username = identity.username;
    login.password = identity.password;
  }
  return login;
}

}  // namespace elasticdl::kube
