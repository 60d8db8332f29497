// The page of a job on a cluster for a browser on this machine: listens on the
// loopback interface and passes requests on to the master's pod through the API
// server, with the user's own credentials.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::cli {

// Thread-safe.
class PageForward {
 public:
  struct Options {
    std::string pod;
    int pod_port = 0;
    // The job's. It is only shown to the pod.
    std::string token;
    // To listen on; 0 = a free one.
    int port = 0;
  };

  // `client` must outlive it. UNAVAILABLE: the port is taken.
  static absl::StatusOr<std::unique_ptr<PageForward>> Start(
      kube::Client& client, const Options& options);
  // Ends what is under way.
  ~PageForward();

  // With a token of its own. Who does not know it gets nothing but the page's
  // style and script: others on this machine must not use the user's
  // credentials.
  std::string url() const;

 private:
  class Server;
  explicit PageForward(std::unique_ptr<Server> server);
  const std::unique_ptr<Server> server_;
};

}  // namespace elasticdl::cli
