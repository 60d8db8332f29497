// elasticdl kill: takes workers or servers away from a job, to see it recover.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {

struct DoomedPod {
  std::string name;
  // 0 on a cluster.
  int64_t pid = 0;
};

// Ends a pod of the chosen job: at once, or with the notice of a preemption.
using PodKiller = std::function<absl::Status(
    const JobChoice& choice, const DoomedPod& pod, bool notice)>;

// Parses the flags, finds the job and its pods, kills them and returns the exit
// code.
int KillCommand(const std::vector<std::string>& args, const JobFinder& find,
                const PodKiller& kill);

}  // namespace elasticdl::cli
