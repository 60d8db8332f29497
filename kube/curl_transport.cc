// The transport over libcurl.
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "credentials.h"
#include "curl_channel.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/kube/cluster_config.h"
#include "url.h"

namespace elasticdl::kube {
namespace {

// A server in the same network accepts in milliseconds; one across the world in
// half a second. The rest is for lost packets (retried after 1 s and 3 s).
constexpr long kConnectTimeoutMs = 5000;
// A host that vanished is noticed by the kernel in about a minute: 30 + 3 * 10.
constexpr long kKeepIdleSeconds = 30;
constexpr long kKeepIntervalSeconds = 10;

// What libcurl's callbacks get.
struct Exchange {
  CURL* easy = nullptr;
  const Transport::ChunkSink* sink = nullptr;
  std::string body;
  absl::Time last_byte;
  bool sink_ended = false;

  long Code() const {
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
};

size_t OnBody(char* data, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.last_byte = Clock::Real().Now();
  const absl::string_view bytes(data, size);
  const long code = exchange.Code();
  if (exchange.sink == nullptr || code < 200 || code >= 300) {
    exchange.body.append(data, size);
    return size;
  }
  if ((*exchange.sink)(bytes)) return size;
  exchange.sink_ended = true;
  return CURL_WRITEFUNC_ERROR;
}

size_t OnHeader(char*, size_t, size_t size, void* user) {
  static_cast<Exchange*>(user)->last_byte = Clock::Real().Now();
  return size;
}

void SetBlob(CURL* easy, CURLoption option, const std::string& pem) {
  curl_blob blob = {};
  // libcurl's own copy is not written to; the struct just has no const.
  blob.data = const_cast<char*>(pem.data());
  blob.len = pem.size();
  blob.flags = CURL_BLOB_COPY;
  curl_easy_setopt(easy, option, &blob);
}

// Thread-safe.
class CurlTransport : public Transport {
 public:
  CurlTransport(ClusterConfig config, ServerUrl url)
      : config_(std::move(config)),
        url_(std::move(url)),
        credentials_(config_) {
    // "For any host and port, connect to …".
    connect_to_.Add(absl::StrCat("::", url_.host, ":", url_.port));
  }

  absl::StatusOr<Response> Call(const Request& request, absl::Duration timeout,
                                const Cancellation* cancel) override {
    CurlChannel::Limits limits;
    limits.total = timeout;
    return Run(request, limits, cancel, nullptr);
  }

  absl::StatusOr<Response> Stream(const Request& request,
                                  absl::Duration idle_timeout,
                                  const Cancellation* cancel,
                                  const ChunkSink& chunk) override {
    CurlChannel::Limits limits;
    limits.silence = idle_timeout;
    return Run(request, limits, cancel, &chunk);
  }

 private:
  absl::StatusOr<Response> Run(const Request& request,
                               const CurlChannel::Limits& limits,
                               const Cancellation* cancel,
                               const ChunkSink* sink);
  absl::StatusOr<Response> Once(const Request& request,
                                const Identity& identity,
                                const CurlChannel::Limits& limits,
                                const Cancellation* cancel,
                                const ChunkSink* sink);
  void SetConnection(CURL* easy, CurlHeaders& headers);
  void SetServerTrust(CURL* easy);
  void SetIdentity(CURL* easy, const Identity& identity, CurlHeaders& headers);
  std::string BaseUrl() const;
  absl::Status Explain(CURLcode code, const char* details,
                       const Request& request) const;

  const ClusterConfig config_;
  const ServerUrl url_;
  CurlHeaders connect_to_;  // constant after construction
  Credentials credentials_;
  CurlPool pool_;
};

absl::StatusOr<Response> CurlTransport::Run(const Request& request,
                                            const CurlChannel::Limits& limits,
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

absl::StatusOr<Response> CurlTransport::Once(const Request& request,
                                             const Identity& identity,
                                             const CurlChannel::Limits& limits,
                                             const Cancellation* cancel,
                                             const ChunkSink* sink) {
  CurlPool::Lease lease = pool_.Take();
  CurlChannel& channel = lease.channel();
  if (!channel.valid()) return absl::ResourceExhaustedError("curl_easy_init");
  CURL* easy = channel.easy();
  Exchange exchange;
  exchange.easy = easy;
  exchange.sink = sink;
  exchange.last_byte = Clock::Real().Now();
  char details[CURL_ERROR_SIZE] = "";
  CurlHeaders headers;

  const std::string url = absl::StrCat(BaseUrl(), TargetOf(request));
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, details);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  SetConnection(easy, headers);
  SetServerTrust(easy);
  SetIdentity(easy, identity, headers);
  // Logs are text and refuse a client that takes JSON only.
  headers.Add("Accept: application/json, */*");
  if (!request.body.empty() || request.method == "POST") {
    headers.Add(absl::StrCat("Content-Type: ", request.content_type));
    // The server is asked nothing before the body is sent: it is small.
    headers.Add("Expect:");
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.method == "HEAD") curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());

  CURLcode code = CURLE_OK;
  const absl::Status driven =
      channel.Transfer(limits, exchange.last_byte, cancel, code);
  if (!driven.ok()) {
    return Annotate(driven, absl::StrCat(request.method, " ", url_.scheme,
                                         "://", url_.host, ":", url_.port));
  }
  if (exchange.sink_ended) return absl::CancelledError("ended by its reader");
  if (code != CURLE_OK) return Explain(code, details, request);
  Response response;
  response.code = static_cast<int>(exchange.Code());
  response.body = std::move(exchange.body);
  return response;
}

// The name in the certificate may differ from where to connect to.
std::string CurlTransport::BaseUrl() const {
  const std::string& host =
      config_.tls_server_name.empty() ? url_.host : config_.tls_server_name;
  return absl::StrCat(url_.scheme, "://", host, ":", url_.port, url_.prefix);
}

void CurlTransport::SetConnection(CURL* easy, CurlHeaders& headers) {
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  // A cancelled call must not wait for the resolver's thread.
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  // One call at a time uses a connection: version 2 has nothing to multiplex.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, kKeepIdleSeconds);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, kKeepIntervalSeconds);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "elasticdl");
  if (!config_.proxy_url.empty()) {
    curl_easy_setopt(easy, CURLOPT_PROXY, config_.proxy_url.c_str());
  }
  if (!config_.tls_server_name.empty()) {
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, connect_to_.get());
    headers.Add(absl::StrCat("Host: ", url_.host, ":", url_.port));
  }
}

void CurlTransport::SetServerTrust(CURL* easy) {
  if (config_.insecure_skip_tls_verify) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!config_.ca_pem.empty()) {
    // This authority instead of the system's, not beside them.
    curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
    SetBlob(easy, CURLOPT_CAINFO_BLOB, config_.ca_pem);
  }
}

void CurlTransport::SetIdentity(CURL* easy, const Identity& identity,
                                CurlHeaders& headers) {
  if (!identity.client_cert_pem.empty()) {
    SetBlob(easy, CURLOPT_SSLCERT_BLOB, identity.client_cert_pem);
    SetBlob(easy, CURLOPT_SSLKEY_BLOB, identity.client_key_pem);
  }
  if (!identity.token.empty()) {
    headers.Add(absl::StrCat("Authorization: Bearer ", identity.token));
  } else if (!identity.username.empty()) {
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(easy, CURLOPT_USERNAME, identity.username.c_str());
    curl_easy_setopt(easy, CURLOPT_PASSWORD, identity.password.c_str());
  }
}

absl::Status CurlTransport::Explain(CURLcode code, const char* details,
                                    const Request& request) const {
  const std::string message = absl::StrCat(
      request.method, " ", url_.scheme, "://", url_.host, ":", url_.port, ": ",
      *details != '\0' ? details : curl_easy_strerror(code));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return absl::FailedPreconditionError(message);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return absl::InvalidArgumentError(message);
    case CURLE_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status CheckPem(const std::string& pem, const char* what,
                      const char* marker) {
  if (pem.empty() || absl::StrContains(pem, marker)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is not PEM: no line with \"", marker, "\""));
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

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    const ClusterConfig& config) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  absl::Status status = CheckConfig(config);
  ServerUrl url;
  if (status.ok()) status = ParseServerUrl(config.server, url);
  if (!status.ok()) return Annotate(status, config.origin);
  return std::make_unique<CurlTransport>(config, std::move(url));
}

}  // namespace elasticdl::kube
