// From the flags of elasticdl-master to the options of the master.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/master.h"

namespace elasticdl::programs {

// `executable` is this program; the worker's and the server's are beside it.
// UNIMPLEMENTED for a strategy that this version does not have. Job folder and
// token are left to the caller.
absl::StatusOr<master::MasterOptions> MakeMasterOptions(
    const flags::JobFlags& flags, const std::string& executable,
    std::vector<std::string> environment);

// What a master in a pod needs, from its flags and the environment; nothing
// without --pod_backend=kubernetes.
std::optional<master::ClusterOptions> MakeClusterOptions(
    const flags::JobFlags& flags);

// Likewise with --pod_backend=slurm; FAILED_PRECONDITION outside of an
// allocation.
absl::StatusOr<std::optional<master::SlurmOptions>> MakeSlurmOptions(
    const flags::JobFlags& flags);

// The flags that were given, to show to people: without what may be secrets,
// that is the values of environment variables, of parameters whose names sound
// like it (key, token, secret, password), and users and passwords in addresses.
std::vector<std::string> ShownFlags(const flags::FlagSet& set);

}  // namespace elasticdl::programs
