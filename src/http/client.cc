#include "elasticdl/http/client.h"

#include <curl/curl.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "channel.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/http/curl_setup.h"

namespace elasticdl::http {
namespace {

// Enough for a message to a person.
constexpr size_t kMaxErrorBody = 64 << 10;

// What libcurl's callbacks get.
struct Exchange {
  const Request* request = nullptr;
  const Client::Sink* sink = nullptr;
  CURL* easy = nullptr;
  absl::Time last_byte;
  Response response;
  // The error of the sink or of the body's source, which ended the transfer.
  absl::Status failed;

  int Code() const {
    long code = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }
};

size_t OnBody(char* data, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.last_byte = Clock::Real().Now();
  if (exchange.sink == nullptr) {
    exchange.response.body.append(data, size);
    return size;
  }
  if (exchange.Code() / 100 != 2) {
    std::string& body = exchange.response.body;
    if (body.size() < kMaxErrorBody) body.append(data, size);
    return size;
  }
  exchange.failed = (*exchange.sink)(absl::string_view(data, size));
  return exchange.failed.ok() ? size : CURL_WRITEFUNC_ERROR;
}

size_t OnHeader(char* data, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.last_byte = Clock::Real().Now();
  const absl::string_view line(data, size);
  const size_t colon = line.find(':');
  if (colon != line.npos) {
    exchange.response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size;
}

size_t OnRead(char* buffer, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const absl::StatusOr<size_t> n =
      exchange.request->body_source(buffer, size * count);
  if (n.ok()) return *n;
  exchange.failed = n.status();
  return CURL_READFUNC_ABORT;
}

void SetCallbacks(CURL* easy, Exchange& exchange) {
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_READFUNCTION, &OnRead);
  curl_easy_setopt(easy, CURLOPT_READDATA, &exchange);
}

// `request` and `headers` must outlive the transfer.
void SetRequest(CURL* easy, const Request& request, CurlList& headers) {
  for (const std::string& header : request.headers) headers.Add(header);
  const bool streamed = request.body_source != nullptr;
  if (streamed || !request.body.empty() || request.method == "POST") {
    // Servers may ignore a question whether to send the body, and libcurl would
    // wait a second for the answer.
    headers.Add("Expect:");
    if (streamed) {
      headers.Add("Transfer-Encoding: chunked");
      curl_easy_setopt(easy, CURLOPT_POST, 1L);
    } else {
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.c_str());
    }
  }
  if (request.method == "HEAD") curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
}

}  // namespace

struct Client::Impl {
  explicit Impl(Server s) : server(std::move(s)) {
    if (!server.connect_to.empty()) {
      // "For any host and port, connect to …".
      connect_to.Add(absl::StrCat("::", server.connect_to));
    }
  }

  const Server server;
  CurlList connect_to;
  ChannelPool pool;
};

Client::Client(Server server)
    : impl_(std::make_unique<Impl>(std::move(server))) {
  InitCurl();
}

Client::~Client() = default;

absl::StatusOr<Response> Client::Send(const Request& request, const Sink* sink,
                                      const Cancellation* cancel) {
  ChannelPool::Lease lease = impl_->pool.Take();
  Channel& channel = lease.channel();
  if (!channel.valid()) return absl::ResourceExhaustedError("curl_easy_init");
  CURL* easy = channel.easy();
  Exchange exchange;
  exchange.request = &request;
  exchange.sink = sink;
  exchange.easy = easy;
  exchange.last_byte = Clock::Real().Now();
  SetCallbacks(easy, exchange);
  char details[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, details);
  SetServer(easy, impl_->server);
  if (impl_->connect_to.get() != nullptr) {
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, impl_->connect_to.get());
  }
  SetLogin(easy, request.login);
  CurlList headers;
  SetRequest(easy, request, headers);
  const std::string url = absl::StrCat(impl_->server.base_url, request.target);
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());

  const absl::StatusOr<CURLcode> result =
      channel.Transfer(request.limits, exchange.last_byte, cancel);
  if (!result.ok()) return Annotate(result.status(), request.what);
  if (!exchange.failed.ok()) return exchange.failed;
  exchange.response.code = exchange.Code();
  // A server that refuses need not read a streamed body to the end.
  const bool refused =
      request.body_source != nullptr && exchange.response.code >= 400;
  if (*result != CURLE_OK && !refused) {
    return Annotate(TransferError(*result, details), request.what);
  }
  return std::move(exchange.response);
}

}  // namespace elasticdl::http
