// The cluster that the kubeconfig of whoever runs the tests names, if any.
//   K8S_TESTS=False        turns these tests off
//   ELASTICDL_TEST_IMAGE   an image with sh and perl that the cluster can pull,
//                          for tests that run pods
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "elasticdl/kube/client.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/relay.h"

namespace elasticdl::kube::test {

// Thread-compatible. Has a namespace of its own, which goes with it.
class RealCluster {
 public:
  // Nothing when there is none; `why` says why, for GTEST_SKIP.
  static std::unique_ptr<RealCluster> Find(std::string& why);
  ~RealCluster();

  const std::string& namespace_name() const { return namespace_; }
  const ClusterConfig& config() const { return config_; }
  // Empty when none is given.
  const std::string& image() const { return image_; }
  // A client of our namespace, with a transport of its own.
  std::unique_ptr<Client> NewClient() const;
  // A wire to the API server that can be cut, and a client at its end.
  std::unique_ptr<Relay> NewRelay() const;
  std::unique_ptr<Client> NewClient(const Relay& relay) const;
  Client& client() { return *client_; }

 private:
  RealCluster(ClusterConfig config, std::string image);
  absl::Status MakeNamespace();
  // Host and port of the API server.
  std::pair<std::string, std::string> Address() const;

  const ClusterConfig config_;
  const std::string image_;
  std::string namespace_;
  std::unique_ptr<Client> client_;
};

}  // namespace elasticdl::kube::test
