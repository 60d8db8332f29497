// A cluster in memory behind the seam of the Kubernetes client: pods, their
// versions, watches, and the faults that tests ask for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::master::test {

// Thread-safe. Outlives the transports that it gave.
class FakeCluster {
 public:
  std::unique_ptr<kube::Transport> Connect();

  // Puts a pod in its place, as the kubelet or somebody else does.
  void Put(const kube::Json& pod);
  void SetStatus(const std::string& name, const kube::Json& status);
  void Remove(const std::string& name);
  bool Has(const std::string& name) const;
  kube::Json Get(const std::string& name) const;
  // Waits until a pod of that name is there; false when it does not come.
  bool WaitFor(const std::string& name) const;

  // While it is down every call fails and watches break. Up again, watches of
  // before get 410: history is forgotten.
  void SetDown(bool down);
  // Lists and watches fail as if it were down, the rest works.
  void SetBlind(bool blind);
  // The answer to every creation from now on; code 0 = the ordinary one.
  void AnswerCreate(int code, const std::string& message);
  // A creation succeeds and its answer is lost, once.
  void LoseNextCreateAnswer();
  // Calls hang until they are cancelled or time out.
  void SetSilent(bool silent);
  // Deletion only marks a pod (deletionTimestamp), as long as it "runs".
  void SetSlowDeletion(bool slow);
  int num_deletes() const;

 private:
  class Connection;
  struct Change {
    int64_t version;
    std::string line;
  };

  absl::StatusOr<kube::Response> Call(const kube::Request& request,
                                      absl::Duration timeout,
                                      const kube::Cancellation* cancel);
  absl::StatusOr<kube::Response> Watch(int64_t from,
                                       const kube::Cancellation* cancel,
                                       const kube::Transport::ChunkSink& chunk);
  kube::Response Create(const std::string& body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  kube::Response Delete(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  kube::Response List() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Note(const char* type, kube::Json pod)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::map<std::string, kube::Json> pods_ ABSL_GUARDED_BY(mu_);
  std::vector<Change> history_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t floor_ ABSL_GUARDED_BY(mu_) = 0;
  int create_code_ ABSL_GUARDED_BY(mu_) = 0;
  std::string create_message_ ABSL_GUARDED_BY(mu_);
  bool lose_answer_ ABSL_GUARDED_BY(mu_) = false;
  bool down_ ABSL_GUARDED_BY(mu_) = false;
  bool blind_ ABSL_GUARDED_BY(mu_) = false;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  bool slow_deletion_ ABSL_GUARDED_BY(mu_) = false;
  int num_deletes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl::master::test
