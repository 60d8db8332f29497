// Objects of a Kubernetes cluster as raw JSON: unknown fields survive.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

using Json = nlohmann::json;

// A kind of object. `group` is empty for the core API.
struct Resource {
  std::string group;
  std::string version;
  std::string plural;
  bool namespaced = true;
};
Resource Pods();
Resource Services();
Resource Secrets();
Resource Namespaces();
Resource Claims();  // PersistentVolumeClaims
Resource Events();
// By apiVersion and kind of an object that ElasticDL itself writes (Pod,
// Service, Secret, Role, RoleBinding, ServiceAccount, PriorityClass,
// PersistentVolume, PersistentVolumeClaim, …). INVALID_ARGUMENT for others.
absl::StatusOr<Resource> ResourceOf(const Json& object);

// The meaning of a response with this code and body: OK for 2xx, NOT_FOUND,
// ALREADY_EXISTS or ABORTED (409 by its reason), OUT_OF_RANGE (410: list
// again), UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT (400, 422),
// RESOURCE_EXHAUSTED (403 of a quota), UNAVAILABLE (429, 5xx). The message is
// the server's, preceded by the request.
absl::Status ToStatus(const Request& request, const Response& response);

// A field of server data: `fallback` when the path is missing or the value has
// another type. Path as in "/status/phase" (JSON pointer).
std::string TextAt(const Json& object, absl::string_view pointer,
                   const std::string& fallback = "");
int64_t NumberAt(const Json& object, absl::string_view pointer,
                 int64_t fallback = 0);
// The array at that path, or an empty one.
const Json& ListAt(const Json& object, absl::string_view pointer);

// Thread-safe. Each call has a deadline; after UNAVAILABLE it may be tried
// again. An object without a namespace gets the client's.
class Client {
 public:
  struct Options {
    std::string namespace_name = "default";
    absl::Duration timeout = absl::Seconds(20);
  };
  Client(std::unique_ptr<Transport> transport, Options options);
  ~Client();

  absl::StatusOr<Json> Create(const Resource& resource, const Json& object);
  // The result that Create would have; nothing is created (dryRun=All).
  absl::Status TryCreate(const Resource& resource, const Json& object);
  absl::StatusOr<Json> Get(const Resource& resource, const std::string& name);
  // `selector`: label selector, or empty.
  absl::StatusOr<Json> List(const Resource& resource,
                            const std::string& selector);
  absl::StatusOr<Json> Replace(const Resource& resource,
                               const std::string& name, const Json& object);
  // JSON merge patch (RFC 7386).
  absl::StatusOr<Json> Patch(const Resource& resource, const std::string& name,
                             const Json& merge_patch);
  // `grace` below zero: the object's own. Propagation: background.
  absl::Status Delete(const Resource& resource, const std::string& name,
                      absl::Duration grace = absl::Seconds(-1));
  // Create, or Replace what is there (for `apply` of simple objects).
  absl::StatusOr<Json> Apply(const Resource& resource, const Json& object);

  struct LogOptions {
    std::string container;
    bool follow = false;
    bool previous = false;
    int64_t tail_lines = -1;
  };
  // The log of a pod, piece by piece; follow: until its container ends.
  absl::Status Logs(const std::string& pod, const LogOptions& options,
                    const Cancellation* cancel,
                    const Transport::ChunkSink& chunk);

  // HTTP to a pod's port through the API server: `path` below the pod's root.
  struct ProxyCall {
    std::string pod;
    int port = 0;
    std::string method = "GET";
    std::vector<std::string> path;
    std::vector<std::pair<std::string, std::string>> query;
  };
  // Returns the pod's response, whatever its code; refusals by the API server
  // itself (no such pod, no rights, nobody listens) are errors.
  absl::StatusOr<Response> Proxy(const ProxyCall& call);
  // The same for a response that arrives piece by piece (Transport::Stream).
  // CancelCalls does not end it, `cancel` does.
  absl::StatusOr<Response> ProxyStream(const ProxyCall& call,
                                       absl::Duration idle_timeout,
                                       const Cancellation* cancel,
                                       const Transport::ChunkSink& chunk);

  // Ends all calls, current and later ones, with CANCELLED.
  void CancelCalls() { cancel_.Cancel(); }

  const std::string& namespace_name() const { return options_.namespace_name; }
  Transport& transport() { return *transport_; }

 private:
  std::string NamespaceOf(const Json& object) const;
  Request CreateRequest(const Resource& resource, const Json& object) const;
  Request ProxyRequest(const ProxyCall& call) const;
  // Sends a request and parses the response.
  absl::StatusOr<Json> Ask(const Request& request);

  const std::unique_ptr<Transport> transport_;
  const Options options_;
  Cancellation cancel_;
};

}  // namespace elasticdl::kube
