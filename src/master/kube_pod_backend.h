// Pods of a Kubernetes cluster.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/kube/client.h"
#include "kube_pod.h"
#include "pod_backend.h"

namespace elasticdl::master {

// Thread-safe. Create and Delete only note what is to be done; threads of the
// backend's own ask the API server, and one more calls the sink. One watch
// tells the state of all pods; pods that this backend made and that the watch
// never showed are asked for one by one.
//
// Finished pods stay, so that their logs can be read, until their owner goes.
class KubePodBackend : public PodBackend {
 public:
  struct Options {
    // For this backend alone: Stop ends all its calls.
    std::unique_ptr<kube::Client> client;
    KubeJob job;
    // Complete pods but for what MakePod fills in. Without one for parameter
    // servers (null) there can be none.
    kube::Json worker_template;
    kube::Json ps_template;
    // How long Start tries to reach the API server.
    absl::Duration start_timeout = absl::Seconds(60);
    // Stop: what pods get between SIGTERM and SIGKILL, and how long it waits
    // for the last to be gone. A job that is stopped has nothing to save.
    absl::Duration stop_grace = absl::Seconds(2);
    absl::Duration stop_timeout = absl::Seconds(15);
    // Between tries to delete a pod.
    absl::Duration retry_initial = absl::Milliseconds(500);
    absl::Duration retry_max = absl::Seconds(10);
  };

  // Lists the job's pods, then watches them. INVALID_ARGUMENT for a bad
  // template, PERMISSION_DENIED with the server's words, UNAVAILABLE when the
  // server does not answer for start_timeout.
  static absl::StatusOr<std::unique_ptr<KubePodBackend>> Start(
      Options options, PodEventSink sink);

  ~KubePodBackend() override;

  // The pods that were there at the start, finished ones too, in no order: for
  // PodManager::Adopt. Their later events come as those of any other pod.
  const std::vector<PodEvent>& existing() const;

  absl::Status Create(const PodSpec& spec) override;
  absl::Status Delete(const std::string& name, absl::Duration grace) override;
  void Stop() override;

 private:
  class Loop;
  explicit KubePodBackend(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace elasticdl::master
