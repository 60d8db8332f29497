#include "curl_options.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "http_transport.h"

namespace elasticdl::kube {
namespace {

// A server in the same network accepts in milliseconds; one across the world in
// half a second. The rest is for lost packets (retried after 1 s and 3 s).
constexpr long kConnectTimeoutMs = 5000;
// A host that vanished is noticed by the kernel in about a minute: 30 + 3 * 10.
constexpr long kKeepIdleSeconds = 30;
constexpr long kKeepIntervalSeconds = 10;

struct ServerUrl {
  std::string scheme;
  std::string host;  // IPv6 in brackets
  std::string port;
  std::string prefix;  // "" or "/path" without a slash at the end
};

// One part of a URL; empty when it is not there.
std::string Part(CURLU* url, CURLUPart part, unsigned int flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

absl::StatusOr<ServerUrl> ParseServerUrl(const std::string& text) {
  CURLU* parser = curl_url();
  const CURLUcode code = curl_url_set(parser, CURLUPART_URL, text.c_str(), 0);
  ServerUrl url;
  url.scheme = Part(parser, CURLUPART_SCHEME, 0);
  url.host = Part(parser, CURLUPART_HOST, 0);
  url.port = Part(parser, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  url.prefix = Part(parser, CURLUPART_PATH, 0);
  curl_url_cleanup(parser);
  if (code != CURLUE_OK || url.host.empty() ||
      (url.scheme != "http" && url.scheme != "https")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server \"", text, "\" is not https://host[:port][/path]"));
  }
  while (!url.prefix.empty() && url.prefix.back() == '/') url.prefix.pop_back();
  return url;
}

void SetBlob(CURL* easy, CURLoption option, const std::string& pem) {
  curl_blob blob = {};
  // libcurl copies it and does not write to it; the struct just has no const.
  blob.data = const_cast<char*>(pem.data());
  blob.len = pem.size();
  blob.flags = CURL_BLOB_COPY;
  curl_easy_setopt(easy, option, &blob);
}

}  // namespace

void CurlList::Add(const std::string& line) {
  curl_slist* longer = curl_slist_append(list_, line.c_str());
  if (longer != nullptr) list_ = longer;
}

absl::StatusOr<CurlOptions> CurlOptions::Make(const ClusterConfig& config) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  absl::Status status = CheckConfig(config);
  if (!status.ok()) return Annotate(status, config.origin);
  const absl::StatusOr<ServerUrl> url = ParseServerUrl(config.server);
  if (!url.ok()) return Annotate(url.status(), config.origin);
  CurlOptions options;
  options.config_ = config;
  const std::string address = absl::StrCat(url->host, ":", url->port);
  options.server_ = absl::StrCat(url->scheme, "://", address);
  if (config.tls_server_name.empty()) {
    options.base_url_ = absl::StrCat(options.server_, url->prefix);
    return options;
  }
  // The name in the certificate differs from where to connect to: the URL has
  // the one, "for any host and port, connect to …" the other.
  options.base_url_ = absl::StrCat(url->scheme, "://", config.tls_server_name,
                                   ":", url->port, url->prefix);
  options.host_header_ = address;
  options.connect_to_.Add(absl::StrCat("::", address));
  return options;
}

void CurlOptions::SetConnection(CURL* easy) const {
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
  if (connect_to_.get() != nullptr) {
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, connect_to_.get());
  }
  if (config_.insecure_skip_tls_verify) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!config_.ca_pem.empty()) {
    // This authority instead of the system's, not beside them.
    curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
    SetBlob(easy, CURLOPT_CAINFO_BLOB, config_.ca_pem);
  }
}

void CurlOptions::SetIdentity(CURL* easy, const Identity& identity) const {
  if (!identity.client_cert_pem.empty()) {
    SetBlob(easy, CURLOPT_SSLCERT_BLOB, identity.client_cert_pem);
    SetBlob(easy, CURLOPT_SSLKEY_BLOB, identity.client_key_pem);
  }
  if (identity.token.empty() && !identity.username.empty()) {
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(easy, CURLOPT_USERNAME, identity.username.c_str());
    curl_easy_setopt(easy, CURLOPT_PASSWORD, identity.password.c_str());
  }
}

absl::Status CurlOptions::Explain(CURLcode code, const std::string& details,
                                  const Request& request) const {
  const std::string message =
      absl::StrCat(request.method, " ", server_, ": ",
                   details.empty() ? curl_easy_strerror(code) : details);
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

}  // namespace elasticdl::kube
