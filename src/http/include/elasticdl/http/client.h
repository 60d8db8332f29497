// HTTP/1.1 requests to one server. The only module that uses libcurl; its users
// are the clients of Kubernetes (kube/) and of Docker (src/docker).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/cancellation.h"

namespace elasticdl::http {

struct Server {
  // The target of a request is appended to it: "https://host:port/prefix". The
  // server's certificate must name this host.
  std::string base_url;
  // "host:port" to connect to if it is another one; else empty.
  std::string connect_to;
  // Connect to this Unix socket instead; no proxy is used.
  std::string unix_socket;
  // "" = the one of the environment, if there is one.
  std::string proxy;
  // The server's certificate must be signed by one of these authorities; "" =
  // by one of the system's.
  std::string ca_pem;
  bool verify = true;
  // False: each request has a new connection.
  bool reuse_connections = true;
};

// Who we are. All empty: nobody in particular. A token is a header.
struct Login {
  std::string cert_pem;
  std::string key_pem;
  std::string username;
  std::string password;
};

// How long a request may take.
struct Limits {
  absl::Duration total = absl::InfiniteDuration();
  // Without a byte from the server.
  absl::Duration silence = absl::InfiniteDuration();
};

struct Request {
  std::string method = "GET";
  // Path and query, encoded: "/v1.41/build?t=a".
  std::string target;
  // "Name: value".
  std::vector<std::string> headers;
  std::string body;
  // Gives the body piece by piece (0 = end) instead. It is sent chunked, so a
  // server need not read it to the end before it answers.
  std::function<absl::StatusOr<size_t>(char*, size_t)> body_source;
  Login login;
  Limits limits;
  // What error messages begin with.
  std::string what;
};

struct Response {
  int code = 0;
  // Names in lower case.
  std::map<std::string, std::string> headers;
  std::string body;
};

// Thread-safe.
class Client {
 public:
  explicit Client(Server server);
  ~Client();

  // Gets the body of a 2xx answer as it comes, on the thread of Send. An error
  // ends the request; Send returns it as it is.
  using Sink = std::function<absl::Status(absl::string_view)>;

  // One request and its answer, whatever its code. `sink` and `cancel` may be
  // null. With a sink, the body of other answers is cut after 64 kB.
  // UNAVAILABLE: no answer; DEADLINE_EXCEEDED; CANCELLED; FAILED_PRECONDITION:
  // the server's certificate is not trusted; INVALID_ARGUMENT: our certificate,
  // or the URL, cannot be used; or the error of `sink` or `body_source`.
  absl::StatusOr<Response> Send(const Request& request, const Sink* sink,
                                const Cancellation* cancel);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace elasticdl::http
