// HTTP to the engine, over libcurl.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine_host.h"

namespace elasticdl::docker {

struct HttpRequest {
  // GET or POST.
  std::string method = "GET";
  // With the query, encoded: "/v1.41/build?t=a".
  std::string path;
  // "Name: value".
  std::vector<std::string> headers;
  // Gives the body piece by piece (0 = end) and is sent chunked; none = empty.
  std::function<absl::StatusOr<size_t>(char*, size_t)> body;
  // Of the whole exchange. A build takes as long as it takes: infinite, ended
  // by Cancel.
  absl::Duration timeout = absl::InfiniteDuration();
};

struct HttpResponse {
  int code = 0;
  // Names in lower case.
  std::map<std::string, std::string> headers;
  // What an answer other than 2xx said; of 2xx it goes to `take`.
  std::string error_body;
};

// Send is for one thread at a time; Cancel for any thread.
class HttpClient {
 public:
  explicit HttpClient(EngineAddress address);
  ~HttpClient();

  // `take` gets the body of a 2xx answer as it comes; what it returns other
  // than OK ends the exchange. UNAVAILABLE: not reached, or the connection
  // broke; DEADLINE_EXCEEDED; CANCELLED.
  absl::StatusOr<HttpResponse> Send(
      const HttpRequest& request,
      const std::function<absl::Status(absl::string_view)>& take);

  // Ends the Send under way and all later ones by closing the connection.
  void Cancel();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// "a b" → "a%20b"; also '/'.
std::string PercentEncode(absl::string_view text);

}  // namespace elasticdl::docker
