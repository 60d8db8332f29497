// The transport over the project's own HTTP client, which uses libcurl.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/kube/cluster_config.h"
#include "http_transport.h"
#include "url.h"

namespace elasticdl::kube {
namespace {

// Thread-safe.
class CurlTransport : public HttpTransport {
 public:
  CurlTransport(const ClusterConfig& config, const ApiServer& server)
      : HttpTransport(config),
        name_(server.name),
        host_header_(server.host_header),
        client_(server.http) {}

 private:
  absl::StatusOr<Response> Once(const Request& request,
                                const Identity& identity,
                                const http::Limits& limits,
                                const Cancellation* cancel,
                                const ChunkSink* sink) override;

  const std::string name_;
  const std::string host_header_;
  http::Client client_;
};

absl::StatusOr<Response> CurlTransport::Once(const Request& request,
                                             const Identity& identity,
                                             const http::Limits& limits,
                                             const Cancellation* cancel,
                                             const ChunkSink* sink) {
  http::Request message;
  message.method = request.method;
  message.target = TargetOf(request);
  message.body = request.body;
  message.login = LoginOf(identity);
  message.limits = limits;
  message.what = absl::StrCat(request.method, " ", name_);
  // Logs are text and refuse a client that takes JSON only.
  message.headers.push_back("Accept: application/json, */*");
  if (!request.body.empty() || request.method == "POST") {
    message.headers.push_back(
        absl::StrCat("Content-Type: ", request.content_type));
  }
  if (!host_header_.empty()) {
    message.headers.push_back(absl::StrCat("Host: ", host_header_));
  }
  if (!identity.token.empty()) {
    message.headers.push_back(
        absl::StrCat("Authorization: Bearer ", identity.token));
  }
  const http::Client::Sink take = [sink](absl::string_view bytes) {
    return (*sink)(bytes) ? absl::OkStatus()
                          : absl::CancelledError("ended by its reader");
  };
  ELASTICDL_ASSIGN_OR_RETURN(
      http::Response answer,
      client_.Send(message, sink == nullptr ? nullptr : &take, cancel));
  Response response;
  response.code = answer.code;
  response.body = std::move(answer.body);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    const ClusterConfig& config) {
  ELASTICDL_ASSIGN_OR_RETURN(const ApiServer server, ApiServerOf(config));
  return std::make_unique<CurlTransport>(config, server);
}

}  // namespace elasticdl::kube
