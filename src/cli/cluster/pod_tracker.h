// The current state of the pods that match a selector; waits for changes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "elasticdl/cluster/pod_view.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/watch.h"

namespace elasticdl::cli {

// Thread-safe.
class PodTracker {
 public:
  struct Snapshot {
    // Grows with each change.
    int64_t version = 0;
    // False: `pods` may still be incomplete.
    bool synced = false;
    std::map<std::string, cluster::PodView> pods;
    // The last state of pods that were deleted.
    std::map<std::string, cluster::PodView> gone;
    // Why the server does not answer; OK if it does.
    absl::Status trouble;
  };

  // `client` must outlive it.
  PodTracker(kube::Client& client, const std::string& selector);

  Snapshot Get() const;
  // Waits until the version differs from this one. False after `timeout` or
  // when interrupted.
  bool WaitChange(int64_t version, absl::Duration timeout) const;
  // Ends all waits, current and later ones.
  void Interrupt();
  bool interrupted() const;

 private:
  void Take(const kube::WatchEvent& event);

  mutable Mutex mu_;
  mutable CondVar changed_;
  Snapshot now_ ABSL_GUARDED_BY(mu_);
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
  // Last: its thread uses the others.
  std::unique_ptr<kube::Watch> watch_;
};

// Waits until no pod matches. DEADLINE_EXCEEDED names the remaining ones.
absl::Status WaitUntilGone(kube::Client& client, const std::string& selector,
                           absl::Duration timeout);

}  // namespace elasticdl::cli
