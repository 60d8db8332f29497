// An API server with state behind kube::Transport: objects, watches, owner
// references, logs; enough for the client's commands.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::test {

// Thread-safe.
class FakeCluster {
 public:
  using Json = nlohmann::json;

  // A client of the namespace "ns". The cluster must outlive it.
  std::unique_ptr<kube::Client> NewClient();

  // Names of what is there, "pods/elasticdl-master-j", sorted.
  std::vector<std::string> Names() const;
  // null when it is not there.
  Json Get(const std::string& key) const;
  void Put(const std::string& key, Json object);
  void Remove(const std::string& key);
  // Merges into the object and tells who watches.
  void Merge(const std::string& key, const Json& patch);
  // The state of a pod's container ("running", …) and its phase.
  void SetPod(const std::string& pod, const std::string& phase,
              const Json& state, int restarts = 0);
  // What a pod's log holds; those who follow get the rest when it ends.
  void AppendLog(const std::string& pod, const std::string& text);

  // "POST secrets" (or "TRY secrets") answers with this code from now on; 0 =
  // as usual.
  void Refuse(const std::string& what, int code, const std::string& message);
  // The answer to an access review: the client (or the account that it asks
  // for) may not "create secrets", "get pods/log", …. Reviews are no calls.
  void Deny(const std::string& right, bool account = false);
  // From now on there is no namespace "ns"; what was in it is left.
  void RemoveNamespace();
  // Calls so far ("TRY pods": a dry run): "POST secrets", "DELETE pods/x", ….
  std::vector<std::string> calls() const;

  // Answers what goes through the proxy of a pod: path with query → response.
  std::function<kube::Response(const kube::Request&)> proxy;
  // Runs after each call, without locks held.
  std::function<void(const std::string& call)> after_call;

 private:
  class Door;
  struct Event {
    int64_t version;
    std::string key;
    Json event;
  };

  kube::Response Answer(const kube::Request& request);
  kube::Response Serve(const kube::Request& request, const std::string& kind,
                       const std::string& key, bool dry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  kube::Response Review(const std::string& kind, const Json& review)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<kube::Response> Stream(const kube::Request& request,
                                        const kube::Cancellation* cancel,
                                        const kube::Transport::ChunkSink& sink);
  void Store(const std::string& key, Json object, const char* type)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<std::string, Json> objects_ ABSL_GUARDED_BY(mu_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> logs_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::pair<int, std::string>> refused_
      ABSL_GUARDED_BY(mu_);
  std::set<std::string> denied_ ABSL_GUARDED_BY(mu_);
  bool has_namespace_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
  std::list<Fd> streams_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 100;
};

}  // namespace elasticdl::test
