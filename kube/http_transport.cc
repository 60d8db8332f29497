#include "http_transport.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::kube {
namespace {

absl::Status CheckPem(const std::string& pem, const char* what,
                      const char* marker) {
  if (pem.empty() || absl::StrContains(pem, marker)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is not PEM: no line with \"", marker, "\""));
}

}  // namespace

absl::StatusOr<Response> HttpTransport::Call(const Request& request,
                                             absl::Duration timeout,
                                             const Cancellation* cancel) {
  TransferLimits limits;
  limits.total = timeout;
  return Run(request, limits, cancel, nullptr);
}

absl::StatusOr<Response> HttpTransport::Stream(const Request& request,
                                               absl::Duration idle_timeout,
                                               const Cancellation* cancel,
                                               const ChunkSink& chunk) {
  TransferLimits limits;
  limits.silence = idle_timeout;
  return Run(request, limits, cancel, &chunk);
}

absl::StatusOr<Response> HttpTransport::Run(const Request& request,
                                            const TransferLimits& limits,
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

absl::Status CheckConfig(const ClusterConfig& config) {
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

}  // namespace elasticdl::kube
