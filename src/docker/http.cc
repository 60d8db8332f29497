#include "http.h"

#include <curl/curl.h>

#include <atomic>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "elasticdl/common/status.h"

namespace elasticdl::docker {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
// A message for a person needs no more.
constexpr size_t kMaxErrorBody = 64 << 10;

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, CurlDeleter>;

// What the callbacks of one exchange see.
struct Exchange {
  const HttpRequest* request = nullptr;
  const std::function<absl::Status(absl::string_view)>* take = nullptr;
  CURL* handle = nullptr;
  HttpResponse response;
  // Why a callback ended it.
  absl::Status failed;
};

size_t OnRead(char* buffer, size_t size, size_t count, void* data) {
  auto* exchange = static_cast<Exchange*>(data);
  const absl::StatusOr<size_t> n =
      exchange->request->body(buffer, size * count);
  if (n.ok()) return *n;
  exchange->failed = n.status();
  return CURL_READFUNC_ABORT;
}

size_t OnData(char* data, size_t size, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const absl::string_view piece(data, size * count);
  long code = 0;  // NOLINT(google-runtime-int): libcurl's type
  curl_easy_getinfo(exchange->handle, CURLINFO_RESPONSE_CODE, &code);
  if (code / 100 != 2) {
    std::string& body = exchange->response.error_body;
    if (body.size() < kMaxErrorBody) body.append(piece.data(), piece.size());
    return piece.size();
  }
  exchange->failed = (*exchange->take)(piece);
  return exchange->failed.ok() ? piece.size() : 0;
}

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto* exchange = static_cast<Exchange*>(user);
  const absl::string_view line(data, size * count);
  const size_t colon = line.find(':');
  if (colon != line.npos) {
    exchange->response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return line.size();
}

void SetAddress(CURL* handle, const EngineAddress& address) {
  if (!address.socket.empty()) {
    curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, address.socket.c_str());
    // A proxy is for the network.
    curl_easy_setopt(handle, CURLOPT_PROXY, "");
  }
  if (!address.ca_file.empty()) {
    curl_easy_setopt(handle, CURLOPT_CAINFO, address.ca_file.c_str());
    curl_easy_setopt(handle, CURLOPT_SSLCERT, address.cert_file.c_str());
    curl_easy_setopt(handle, CURLOPT_SSLKEY, address.key_file.c_str());
  }
}

void SetCallbacks(CURL* handle, Exchange* exchange) {
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, exchange);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, OnData);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, exchange);
  curl_easy_setopt(handle, CURLOPT_READFUNCTION, OnRead);
  curl_easy_setopt(handle, CURLOPT_READDATA, exchange);
}

absl::Status CurlToStatus(CURLcode code, const char* detail,
                          const std::string& host) {
  const std::string message =
      absl::StrCat("the Docker engine at ", host, ": ",
                   detail[0] != '\0' ? detail : curl_easy_strerror(code));
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return absl::DeadlineExceededError(message);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
      return absl::PermissionDeniedError(
          absl::StrCat(message, " (see DOCKER_CERT_PATH)"));
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

struct HttpClient::Impl {
  explicit Impl(EngineAddress address)
      : address(std::move(address)),
        multi(curl_multi_init(), curl_multi_cleanup) {}

  // Runs until the exchange is over. The code of libcurl, or CANCELLED.
  absl::StatusOr<CURLcode> Run(CURL* handle) {
    int running = 1;
    while (true) {
      if (cancelled.load()) return absl::CancelledError("cancelled");
      if (curl_multi_perform(multi.get(), &running) != CURLM_OK) {
        return absl::InternalError("curl_multi_perform");
      }
      int left = 0;
      while (CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
        if (message->msg == CURLMSG_DONE && message->easy_handle == handle) {
          return message->data.result;
        }
      }
      // Ends early for data and for curl_multi_wakeup; the minute is only so
      // long as libcurl's own timers allow.
      curl_multi_poll(multi.get(), nullptr, 0, 60'000, nullptr);
    }
  }

  const EngineAddress address;
  const std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi;
  std::atomic<bool> cancelled{false};
};

HttpClient::HttpClient(EngineAddress address)
    : impl_(std::make_unique<Impl>(std::move(address))) {}

HttpClient::~HttpClient() = default;

void HttpClient::Cancel() {
  impl_->cancelled.store(true);
  curl_multi_wakeup(impl_->multi.get());
}

absl::StatusOr<HttpResponse> HttpClient::Send(
    const HttpRequest& request,
    const std::function<absl::Status(absl::string_view)>& take) {
  const Easy easy(curl_easy_init());
  if (easy == nullptr) return absl::InternalError("curl_easy_init");
  CURL* handle = easy.get();
  Exchange exchange;
  exchange.request = &request;
  exchange.take = &take;
  exchange.handle = handle;
  char detail[CURL_ERROR_SIZE] = "";
  const std::string url = absl::StrCat(impl_->address.base_url, request.path);
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  // A connection of its own for each exchange: the engine may close an idle one
  // just when it is used again, and a streamed body cannot be sent twice.
  curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(handle, CURLOPT_FORBID_REUSE, 1L);
  curl_easy_setopt(
      handle, CURLOPT_CONNECTTIMEOUT_MS,
      static_cast<long>(absl::ToInt64Milliseconds(kConnectTimeout)));  // NOLINT
  if (request.timeout != absl::InfiniteDuration()) {
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                     static_cast<long>(absl::ToInt64Milliseconds(
                         request.timeout)));  // NOLINT
  }
  SetAddress(handle, impl_->address);
  SetCallbacks(handle, &exchange);
  curl_slist* list = nullptr;
  for (const std::string& header : request.headers) {
    list = curl_slist_append(list, header.c_str());
  }
  if (request.method == "POST") {
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    if (request.body == nullptr) {
      curl_easy_setopt(handle, CURLOPT_POSTFIELDS, "");
    } else {
      list = curl_slist_append(list, "Transfer-Encoding: chunked");
    }
    // Nobody answers it, and libcurl would wait a second.
    list = curl_slist_append(list, "Expect:");
  }
  const std::unique_ptr<curl_slist, CurlDeleter> headers(list);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());

  curl_multi_add_handle(impl_->multi.get(), handle);
  const absl::StatusOr<CURLcode> code = impl_->Run(handle);
  long http_code = 0;  // NOLINT(google-runtime-int): libcurl's type
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http_code);
  // Closes the connection if it is still open.
  curl_multi_remove_handle(impl_->multi.get(), handle);
  if (!code.ok()) return code.status();
  if (!exchange.failed.ok()) return exchange.failed;
  exchange.response.code = static_cast<int>(http_code);
  // An engine that refuses need not read what is sent to the end.
  if (*code != CURLE_OK && http_code < 400) {
    return CurlToStatus(*code, detail, impl_->address.name);
  }
  return std::move(exchange.response);
}

std::string PercentEncode(absl::string_view text) {
  std::string result;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::StrContains("-._~", c)) {
      result += c;
    } else {
      absl::StrAppendFormat(&result, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return result;
}

}  // namespace elasticdl::docker
