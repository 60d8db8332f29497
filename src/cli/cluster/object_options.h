// From the flags of a job to the options of its objects. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {

// `flags` and `set` are checked. `token` is the job's secret.
absl::StatusOr<cluster::JobOptions> MakeClusterJobOptions(
    const flags::JobFlags& flags, const flags::FlagSet& set,
    const std::string& name_space, const std::string& token);

// Warnings for the user: results that are lost with their pods because they are
// not on a --volume.
std::vector<std::string> ClusterJobHints(const flags::JobFlags& flags);

}  // namespace elasticdl::cli
