// The transport over libcurl.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "curl_channel.h"
#include "curl_options.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/kube/cluster_config.h"
#include "http_transport.h"
#include "url.h"

namespace elasticdl::kube {
namespace {

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
  const long code = exchange.Code();
  if (exchange.sink == nullptr || code < 200 || code >= 300) {
    exchange.body.append(data, size);
    return size;
  }
  if ((*exchange.sink)(absl::string_view(data, size))) return size;
  exchange.sink_ended = true;
  return CURL_WRITEFUNC_ERROR;
}

size_t OnHeader(char*, size_t, size_t size, void* user) {
  static_cast<Exchange*>(user)->last_byte = Clock::Real().Now();
  return size;
}

void SetCallbacks(CURL* easy, Exchange& exchange) {
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
}

void SetRequest(CURL* easy, const Request& request, CurlList& headers) {
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
}

// Thread-safe.
class CurlTransport : public HttpTransport {
 public:
  CurlTransport(const ClusterConfig& config, CurlOptions options)
      : HttpTransport(config), options_(std::move(options)) {}

 private:
  absl::StatusOr<Response> Once(const Request& request,
                                const Identity& identity,
                                const TransferLimits& limits,
                                const Cancellation* cancel,
                                const ChunkSink* sink) override;

  const CurlOptions options_;
  CurlPool pool_;
};

absl::StatusOr<Response> CurlTransport::Once(const Request& request,
                                             const Identity& identity,
                                             const TransferLimits& limits,
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
  SetCallbacks(easy, exchange);
  char details[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, details);
  options_.SetConnection(easy);
  options_.SetIdentity(easy, identity);
  CurlList headers;
  if (!options_.host_header().empty()) {
    headers.Add(absl::StrCat("Host: ", options_.host_header()));
  }
  if (!identity.token.empty()) {
    headers.Add(absl::StrCat("Authorization: Bearer ", identity.token));
  }
  SetRequest(easy, request, headers);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  const std::string url = absl::StrCat(options_.base_url(), TargetOf(request));
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());

  CURLcode code = CURLE_OK;
  const absl::Status driven =
      channel.Transfer(limits, exchange.last_byte, cancel, code);
  if (!driven.ok()) {
    return Annotate(driven,
                    absl::StrCat(request.method, " ", options_.server()));
  }
  if (exchange.sink_ended) return absl::CancelledError("ended by its reader");
  if (code != CURLE_OK) return options_.Explain(code, details, request);
  Response response;
  response.code = static_cast<int>(exchange.Code());
  response.body = std::move(exchange.body);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    const ClusterConfig& config) {
  ELASTICDL_ASSIGN_OR_RETURN(CurlOptions options, CurlOptions::Make(config));
  return std::make_unique<CurlTransport>(config, std::move(options));
}

}  // namespace elasticdl::kube
