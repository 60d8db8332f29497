#include "elasticdl/http/curl_setup.h"

#include <curl/curl.h>

#include <mutex>

namespace elasticdl::http {
namespace {

// A server in the same network accepts in milliseconds; one across the world in
// half a second. The rest is for lost packets (retried after 1 s and 3 s).
constexpr long kConnectTimeoutMs = 5000;
// The kernel notices within about a minute that a host is gone: 30 + 3 * 10 s.
constexpr long kKeepIdleSeconds = 30;
constexpr long kKeepIntervalSeconds = 10;

void SetBlob(CURL* easy, CURLoption option, const std::string& pem) {
  curl_blob blob = {};
  // libcurl copies it and does not write to it; the struct just has no const.
  blob.data = const_cast<char*>(pem.data());
  blob.len = pem.size();
  blob.flags = CURL_BLOB_COPY;
  curl_easy_setopt(easy, option, &blob);
}

}  // namespace

void InitCurl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

void SetServer(void* easy, const Server& server) {
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
  if (!server.unix_socket.empty()) {
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH,
                     server.unix_socket.c_str());
    // A proxy is for the network.
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
  } else if (!server.proxy.empty()) {
    curl_easy_setopt(easy, CURLOPT_PROXY, server.proxy.c_str());
  }
  if (!server.reuse_connections) {
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
  }
  if (!server.verify) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!server.ca_pem.empty()) {
    // This authority instead of the system's, not in addition to them.
    curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
    SetBlob(easy, CURLOPT_CAINFO_BLOB, server.ca_pem);
  }
}

void SetLogin(void* easy, const Login& login) {
  if (!login.cert_pem.empty()) {
    SetBlob(easy, CURLOPT_SSLCERT_BLOB, login.cert_pem);
    SetBlob(easy, CURLOPT_SSLKEY_BLOB, login.key_pem);
  }
  if (!login.username.empty()) {
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(easy, CURLOPT_USERNAME, login.username.c_str());
    curl_easy_setopt(easy, CURLOPT_PASSWORD, login.password.c_str());
  }
}

absl::Status TransferError(int code, const std::string& details) {
  const std::string message =
      details.empty() ? curl_easy_strerror(static_cast<CURLcode>(code))
                      : details;
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

}  // namespace elasticdl::http
