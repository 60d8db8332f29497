// The transport over kubernetes-client/c. Only apiClient_invoke of that library
// is used, not its models, generic client, kubeconfig and watch. What it lacks
// (deadlines, cancellation, reused connections, errors) is set on the libcurl
// handle, which its callback gets before each transfer. Rules:
//  * an apiClient_t is used for one call at a time, and no response is kept
//    after the call;
//  * path and query are encoded here and passed as one string;
//  * the library is never given an empty list;
//  * a response without a code is an error.
// Cancellation takes effect within a second, because libcurl's easy interface
// calls the progress function once a second.
#include <curl/curl.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include <kubernetes/include/apiClient.h>
#include <kubernetes/include/keyValuePair.h>
#include <kubernetes/include/list.h>
}

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/http/curl_setup.h"
#include "elasticdl/kube/cluster_config.h"
#include "http_transport.h"
#include "url.h"

namespace elasticdl::kube {
namespace {

// Idle connections that are kept. More calls at once open new ones.
constexpr size_t kMaxIdleChannels = 8;

// One call: the callbacks' input and output.
struct Exchange {
  const ApiServer* server = nullptr;
  curl_slist* connect_to = nullptr;
  const Identity* identity = nullptr;
  const Request* request = nullptr;
  const http::Limits* limits = nullptr;
  const Cancellation* cancel = nullptr;
  const Transport::ChunkSink* sink = nullptr;
  CURLSH* share = nullptr;
  CURL* easy = nullptr;
  absl::Time last_byte;
  std::string body;
  char details[CURL_ERROR_SIZE] = "";
  // Not OK: why we ended the transfer.
  absl::Status ended;
};

// The library's callbacks have no argument for user data. They run on the
// thread that called it.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local Exchange* current = nullptr;

// Zero: continue.
int OnProgress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(data);
  if (!exchange.ended.ok()) return 1;
  if (exchange.cancel != nullptr && exchange.cancel->cancelled()) {
    exchange.ended = absl::CancelledError("cancelled");
  } else if (Clock::Real().Now() - exchange.last_byte >=
             exchange.limits->silence) {
    exchange.ended = absl::DeadlineExceededError(absl::StrCat(
        "silent for ", absl::FormatDuration(exchange.limits->silence)));
  }
  return exchange.ended.ok() ? 0 : 1;
}

void BeforeTransfer(CURL* easy) {
  Exchange& exchange = *current;
  exchange.easy = easy;
  http::SetServer(easy, exchange.server->http);
  if (exchange.connect_to != nullptr) {
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, exchange.connect_to);
  }
  http::SetLogin(easy, LoginOf(*exchange.identity));
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange.details);
  curl_easy_setopt(easy, CURLOPT_SHARE, exchange.share);
  if (exchange.request->method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  }
  if (exchange.limits->total < absl::InfiniteDuration()) {
    const int64_t ms = absl::ToInt64Milliseconds(exchange.limits->total);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     static_cast<long>(std::max<int64_t>(ms, 1)));
  }
}

void OnData(void** data, long* size) {
  Exchange& exchange = *current;
  exchange.last_byte = Clock::Real().Now();
  const absl::string_view bytes(static_cast<char*>(*data),
                                static_cast<size_t>(*size));
  long code = 0;
  curl_easy_getinfo(exchange.easy, CURLINFO_RESPONSE_CODE, &code);
  if (exchange.sink == nullptr || code < 200 || code >= 300) {
    absl::StrAppend(&exchange.body, bytes);
  } else if (exchange.ended.ok() && !(*exchange.sink)(bytes)) {
    exchange.ended = absl::CancelledError("ended by its reader");
  }
  *size = 0;  // taken
}

// The library drops libcurl's code; only the message is left.
CURLcode CodeOf(const std::string& details) {
  for (const char* words :
       {"SSL certificate problem", "no alternative certificate subject name",
        "certificate subject name"}) {
    if (absl::StrContains(details, words)) {
      return CURLE_PEER_FAILED_VERIFICATION;
    }
  }
  for (const char* words :
       {"could not load PEM client certificate", "unable to set private key",
        "does not match the certificate"}) {
    if (absl::StrContains(details, words)) return CURLE_SSL_CERTPROBLEM;
  }
  return CURLE_RECV_ERROR;
}

// A list of the library that owns its strings or pairs. Thread-compatible.
class List {
 public:
  List() : list_(list_createList()) {}
  ~List() {
    for (listEntry_t* entry = list_->firstEntry; entry != nullptr;
         entry = entry->nextListEntry) {
      if (!pairs_) {
        free(entry->data);
        continue;
      }
      auto* pair = static_cast<keyValuePair_t*>(entry->data);
      free(pair->key);
      free(pair->value);
      keyValuePair_free(pair);
    }
    list_freeList(list_);
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  void AddText(const std::string& text) {
    list_addElement(list_, strdup(text.c_str()));
  }
  void AddPair(const std::string& key, const std::string& value) {
    pairs_ = true;
    list_addElement(
        list_, keyValuePair_create(strdup(key.c_str()), strdup(value.c_str())));
  }
  // Null instead of an empty list.
  list_t* get() const { return list_->count == 0 ? nullptr : list_; }

 private:
  list_t* const list_;
  bool pairs_ = false;
};

// One call at a time, and the connection that the last one left open. The
// library makes a new handle for each call; the share keeps the connection.
class Channel {
 public:
  explicit Channel(const std::string& base_url)
      : client_(apiClient_create_with_base_path(base_url.c_str(), nullptr,
                                                nullptr)),
        share_(curl_share_init()) {
    curl_share_setopt(share_, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT);
    client_->curl_pre_invoke_func = &BeforeTransfer;
    client_->data_callback_func = &OnData;
    client_->progress_func = &OnProgress;
  }
  ~Channel() {
    apiClient_free(client_);
    curl_share_cleanup(share_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // The HTTP code, or 0 without a response.
  long Invoke(Exchange& exchange, const List& headers);

 private:
  apiClient_t* const client_;
  CURLSH* const share_;
};

long Channel::Invoke(Exchange& exchange, const List& headers) {
  const Request& request = *exchange.request;
  List accept;
  // Logs are text and refuse a client that takes JSON only.
  accept.AddText("application/json, */*");
  List content_type;
  content_type.AddText(request.content_type);
  const bool has_body = !request.body.empty() || request.method == "POST";
  exchange.share = share_;
  client_->progress_data = &exchange;
  client_->response_code = 0;
  current = &exchange;
  apiClient_invoke(client_, TargetOf(request).c_str(), nullptr, headers.get(),
                   nullptr, accept.get(), content_type.get(),
                   has_body ? request.body.c_str() : nullptr,
                   request.body.size(), request.method.c_str());
  current = nullptr;
  client_->progress_data = nullptr;
  free(std::exchange(client_->dataReceived, nullptr));
  client_->dataReceivedLen = 0;
  return client_->response_code;
}

// Thread-safe.
class KubernetesCTransport : public HttpTransport {
 public:
  KubernetesCTransport(const ClusterConfig& config, ApiServer server)
      : HttpTransport(config),
        server_(std::move(server)),
        // "For any host and port, connect to …".
        connect_to_(
            server_.http.connect_to.empty()
                ? nullptr
                : curl_slist_append(
                      nullptr,
                      absl::StrCat("::", server_.http.connect_to).c_str())) {
    http::InitCurl();
  }
  ~KubernetesCTransport() override { curl_slist_free_all(connect_to_); }

 private:
  absl::StatusOr<Response> Once(const Request& request,
                                const Identity& identity,
                                const http::Limits& limits,
                                const Cancellation* cancel,
                                const ChunkSink* sink) override;
  std::unique_ptr<Channel> Take();
  void Return(std::unique_ptr<Channel> channel);

  const ApiServer server_;
  curl_slist* const connect_to_;
  Mutex mu_;
  std::vector<std::unique_ptr<Channel>> idle_ ABSL_GUARDED_BY(mu_);
};

std::unique_ptr<Channel> KubernetesCTransport::Take() {
  MutexLock lock(mu_);
  if (idle_.empty()) return std::make_unique<Channel>(server_.http.base_url);
  std::unique_ptr<Channel> channel = std::move(idle_.back());
  idle_.pop_back();
  return channel;
}

void KubernetesCTransport::Return(std::unique_ptr<Channel> channel) {
  MutexLock lock(mu_);
  if (idle_.size() < kMaxIdleChannels) idle_.push_back(std::move(channel));
}

absl::StatusOr<Response> KubernetesCTransport::Once(const Request& request,
                                                    const Identity& identity,
                                                    const http::Limits& limits,
                                                    const Cancellation* cancel,
                                                    const ChunkSink* sink) {
  if (cancel != nullptr && cancel->cancelled()) {
    return absl::CancelledError("cancelled");
  }
  Exchange exchange;
  exchange.server = &server_;
  exchange.connect_to = connect_to_;
  exchange.identity = &identity;
  exchange.request = &request;
  exchange.limits = &limits;
  exchange.cancel = cancel;
  exchange.sink = sink;
  const absl::Time start = Clock::Real().Now();
  exchange.last_byte = start;
  List headers;
  if (!server_.host_header.empty()) {
    headers.AddPair("Host", server_.host_header);
  }
  if (!identity.token.empty()) {
    headers.AddPair("Authorization", absl::StrCat("Bearer ", identity.token));
  }
  std::unique_ptr<Channel> channel = Take();
  const long code = channel->Invoke(exchange, headers);
  Return(std::move(channel));
  const std::string what = absl::StrCat(request.method, " ", server_.name);
  if (!exchange.ended.ok()) return Annotate(exchange.ended, what);
  if (code == 0 && Clock::Real().Now() - start >= limits.total) {
    return absl::DeadlineExceededError(absl::StrCat(
        what, ": no answer within ", absl::FormatDuration(limits.total)));
  }
  if (code == 0) {
    return Annotate(
        http::TransferError(CodeOf(exchange.details), exchange.details), what);
  }
  Response response;
  response.code = static_cast<int>(code);
  response.body = std::move(exchange.body);
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
    const ClusterConfig& config) {
  ELASTICDL_ASSIGN_OR_RETURN(ApiServer server, ApiServerOf(config));
  return std::make_unique<KubernetesCTransport>(config, std::move(server));
}

}  // namespace elasticdl::kube
