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

// Thread-safe. Create and Delete only queue the request; the backend's threads
// call the API server, and another one calls the sink. One watch reports the
// state of all pods. Pods that this backend created and that the watch never
// showed are queried one by one.
//
// Ended pods are kept until their owner is deleted, so that their logs can be
// read.
class KubePodBackend : public PodBackend {
 public:
  struct Options {
    // For this backend alone: Stop ends all its calls.
    std::unique_ptr<kube::Client> client;
    KubeJob job;
    // Complete pods except for the fields that MakePod fills in. The one for
    // parameter servers may be null if there are none.
    kube::Json worker_template;
    kube::Json ps_template;
    // How long Start tries to reach the API server.
    absl::Duration start_timeout = absl::Seconds(60);
    // Stop: the pods' time between SIGTERM and SIGKILL, and how long to wait
    // until the last one is gone. A stopped job has nothing to save.
    absl::Duration stop_grace = absl::Seconds(2);
    absl::Duration stop_timeout = absl::Seconds(15);
    // Between tries to delete a pod.
    absl::Duration retry_initial = absl::Milliseconds(500);
    absl::Duration retry_max = absl::Seconds(10);
  };

  // Lists the job's pods, then watches them. INVALID_ARGUMENT for a bad
  // template, PERMISSION_DENIED with the server's message, UNAVAILABLE if the
  // server does not answer for start_timeout.
  static absl::StatusOr<std::unique_ptr<KubePodBackend>> Start(
      Options options, PodEventSink sink);

  ~KubePodBackend() override;

  // The pods that existed at the start, including ended ones, in any order: for
  // PodManager::Adopt. Their later events are reported like those of any pod.
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
