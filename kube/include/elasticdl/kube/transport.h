// The seam between the Kubernetes client and the HTTP library under it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace elasticdl::kube {

// Thread-safe. Ends a call that waits, from any thread; for good.
class Cancellation {
 public:
  Cancellation();
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool cancelled() const { return cancelled_.load(); }
  // Readable once cancelled: for poll().
  int fd() const { return fd_; }

 private:
  std::atomic<bool> cancelled_{false};
  const int fd_;
};

struct Request {
  std::string method = "GET";
  // Segments of the path, unescaped: the transport percent-encodes each.
  std::vector<std::string> path;
  // Unescaped.
  std::vector<std::pair<std::string, std::string>> query;
  std::string content_type = "application/json";
  std::string body;
};

struct Response {
  int code = 0;
  std::string body;
};

// Thread-safe. HTTP to one API server: TLS, credentials, reused connections.
class Transport {
 public:
  virtual ~Transport() = default;

  // One request and its whole answer, whatever its code. UNAVAILABLE when there
  // was no answer, DEADLINE_EXCEEDED after `timeout`, CANCELLED (`cancel` may
  // be null). FAILED_PRECONDITION when the server's certificate is not trusted.
  // UNAUTHENTICATED when credentials could not be had (a login program that
  // fails, a token that cannot be read); having them takes at most a minute,
  // which `timeout` does not count. After a 401, renewed credentials are tried
  // once.
  virtual absl::StatusOr<Response> Call(const Request& request,
                                        absl::Duration timeout,
                                        const Cancellation* cancel) = 0;

  // One request whose answer comes piece by piece. `chunk` is called on this
  // thread with what has come; false ends the call (CANCELLED). A body whose
  // code is not 2xx is collected and returned instead. `idle_timeout`: the
  // longest silence; infinite = for ever, as `cancel` is there.
  using ChunkSink = std::function<bool(absl::string_view bytes)>;
  virtual absl::StatusOr<Response> Stream(const Request& request,
                                          absl::Duration idle_timeout,
                                          const Cancellation* cancel,
                                          const ChunkSink& chunk) = 0;
};

}  // namespace elasticdl::kube
