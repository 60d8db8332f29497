// A process on this machine that represents a pod that runs elsewhere.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pod_backend.h"

namespace elasticdl::master {

// How to handle such a process. It ends when its pod has ended, with the pod's
// exit code; SIGTERM has it kill the pod at once. The functions are called on
// the backend's thread.
struct PodProxy {
  // What the pod has reported about itself.
  struct Place {
    // By which `terminate` finds it.
    std::string id;
    // 0 if it does not run on this machine.
    pid_t pid = 0;
  };

  // The command of the process. The first line of its standard output comes
  // from the pod, as soon as that runs. Its standard error goes to the log.
  std::function<std::vector<std::string>(const PodSpec& spec)> start;
  // Understands that line.
  std::function<absl::StatusOr<Place>(const std::string& line)> parse;
  // A command that sends SIGTERM to the pod `id`.
  std::function<std::vector<std::string>(const std::string& id)> terminate;
  // A command that kills the pod `id`, for when the process could not.
  std::function<std::vector<std::string>(const std::string& id)> kill;
  // What to say when the pod does not run after `patience`.
  std::string waiting;
  absl::Duration patience = absl::Seconds(5);
};

}  // namespace elasticdl::master
