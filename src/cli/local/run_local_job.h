// Runs a job on this machine, from its start to its end.
#pragma once

#include <string>

#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {

// Runs `command` (train, evaluate, predict) with checked flags (job_name and
// state_dir are set) with the master that is installed next to this program.
// Returns its exit code, or 1 if a job with that name is running. Leaves no
// process behind, see LaunchMaster.
int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set);
// The same with another master program.
int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set, const std::string& master_program);

}  // namespace elasticdl::cli
