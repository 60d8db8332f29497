// How libcurl is to talk to one API server.
#pragma once

#include <curl/curl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "credentials.h"
#include "elasticdl/kube/cluster_config.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// libcurl's list of strings, with an owner.
class CurlList {
 public:
  CurlList() = default;
  ~CurlList() { curl_slist_free_all(list_); }
  CurlList(CurlList&& other) noexcept : list_(other.list_) {
    other.list_ = nullptr;
  }
  CurlList(const CurlList&) = delete;
  CurlList& operator=(const CurlList&) = delete;
  void Add(const std::string& line);
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// Thread-safe: constant after construction.
class CurlOptions {
 public:
  // INVALID_ARGUMENT unless the server is http(s)://host[:port][/prefix] and
  // certificates look like ones. Sets libcurl up.
  static absl::StatusOr<CurlOptions> Make(const ClusterConfig& config);

  // "https://host:port/prefix": what the path of a request is appended to. Its
  // host is the one that the certificate must name.
  const std::string& base_url() const { return base_url_; }
  // "https://host:port", for messages.
  const std::string& server() const { return server_; }
  // The Host header when it differs from base_url(), else empty.
  const std::string& host_header() const { return host_header_; }

  // Everything about the connection: where to, timeouts, trust, proxy. `this`
  // must outlive the transfer.
  void SetConnection(CURL* easy) const;
  // The client certificate, user and password. Not the token: that is a header.
  void SetIdentity(CURL* easy, const Identity& identity) const;

  // What it means that a transfer has failed; `details`: libcurl's own words.
  absl::Status Explain(CURLcode code, const std::string& details,
                       const Request& request) const;

 private:
  CurlOptions() = default;

  ClusterConfig config_;
  std::string base_url_;
  std::string server_;
  std::string host_header_;
  CurlList connect_to_;
};

}  // namespace elasticdl::kube
