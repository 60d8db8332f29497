// Pods as steps of a Slurm allocation (docs/design/0012-slurm.md). Each step
// has a local srun process as its proxy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/master.h"
#include "pod_backend.h"
#include "pod_proxy.h"

namespace elasticdl::master {

// The environment for srun, without the variables that the allocation has set,
// because they would override the command line.
std::vector<std::string> SrunEnvironment(
    const std::vector<std::string>& environment);

// How steps of the allocation are started, recognised and ended. `host` is this
// machine's name, as uname -n says it. Pure.
PodProxy StepProxy(const SlurmOptions& slurm, const std::string& host);

// Thread-safe. NOT_FOUND from Create: there is no srun.
absl::StatusOr<std::unique_ptr<PodBackend>> StartSlurmPodBackend(
    const SlurmOptions& slurm, const std::vector<std::string>& environment,
    PodEventSink sink);

}  // namespace elasticdl::master
