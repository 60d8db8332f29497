#include "kube/real_cluster.h"

#include <stdlib.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/status.h"
#include "elasticdl/kube/watch.h"

namespace elasticdl::kube::test {
namespace {

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

Resource Namespaces() { return {"", "v1", "namespaces", false}; }

}  // namespace

std::unique_ptr<RealCluster> RealCluster::Find(std::string& why) {
  if (absl::AsciiStrToLower(Environment("K8S_TESTS")) == "false") {
    why = "K8S_TESTS=False";
    return nullptr;
  }
  ConfigSource source;
  source.kubeconfig = Environment("KUBECONFIG");
  source.home = Environment("HOME");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    source.environment.push_back(*entry);
  }
  auto config = LoadClusterConfig(source);
  if (!config.ok()) {
    why = std::string(config.status().message());
    return nullptr;
  }
  std::unique_ptr<RealCluster> cluster(
      new RealCluster(*std::move(config), Environment("ELASTICDL_TEST_IMAGE")));
  const absl::Status status = cluster->MakeNamespace();
  if (status.ok()) return cluster;
  why = absl::StrCat(cluster->config().origin, ": ", status.message());
  return nullptr;
}

RealCluster::RealCluster(ClusterConfig config, std::string image)
    : config_(std::move(config)), image_(std::move(image)) {}

absl::Status RealCluster::MakeNamespace() {
  ELASTICDL_ASSIGN_OR_RETURN(auto transport, MakeTransport(config_));
  const std::string name = absl::StrFormat("elasticdl-test-%d-%08x", getpid(),
                                           std::random_device{}());
  Client::Options options;
  options.namespace_name = name;
  client_ = std::make_unique<Client>(std::move(transport), options);
  ELASTICDL_RETURN_IF_ERROR(
      client_
          ->Create(Namespaces(), {{"apiVersion", "v1"},
                                  {"kind", "Namespace"},
                                  {"metadata", {{"name", name}}}})
          .status());
  namespace_ = name;
  // No pod can be made before its account is there.
  Queue<int> seen(100);
  Watch::Options accounts;
  accounts.resource = {"", "v1", "serviceaccounts", true};
  accounts.namespace_name = name;
  const Watch watch(client_->transport(), accounts,
                    [&](const WatchEvent& event) {
                      if (TextAt(event.object, "/metadata/name") == "default") {
                        seen.Push(1);
                      }
                    });
  if (!seen.Pop(absl::Seconds(60)).has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no default account in the new namespace ", name));
  }
  return absl::OkStatus();
}

RealCluster::~RealCluster() {
  if (namespace_.empty()) return;
  client_->Delete(Namespaces(), namespace_).IgnoreError();
}

std::unique_ptr<Client> RealCluster::NewClient() const {
  Client::Options options;
  options.namespace_name = namespace_;
  return std::make_unique<Client>(*MakeTransport(config_), options);
}

std::unique_ptr<Relay> RealCluster::NewRelay() const {
  const auto [host, port] = Address();
  return std::make_unique<Relay>(host, port);
}

std::unique_ptr<Client> RealCluster::NewClient(const Relay& relay) const {
  ClusterConfig config = config_;
  // The certificate names the server, not the wire.
  if (config.tls_server_name.empty()) config.tls_server_name = Address().first;
  config.server = absl::StrCat("https://127.0.0.1:", relay.port());
  Client::Options options;
  options.namespace_name = namespace_;
  return std::make_unique<Client>(*MakeTransport(config), options);
}

std::pair<std::string, std::string> RealCluster::Address() const {
  std::string address(absl::StripPrefix(config_.server, "https://"));
  address = address.substr(0, address.find('/'));
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, "443"};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

}  // namespace elasticdl::kube::test
