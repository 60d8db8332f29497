// Jobs on this machine: start one, look at it, change it, end it.
#pragma once

#include <string>
#include <vector>

#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {

// Runs `command` (train, evaluate, predict) with checked flags (job_name and
// state_dir filled in) as a master beside this program; its exit code, or 1
// when a job of that name runs. Leaves no process behind, see LaunchMaster.
int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set);
// The same with another master program.
int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set, const std::string& master_program);

// list, top, scale, logs, stop: --job_name may be left out when one job runs.
int RunList(const std::vector<std::string>& args);
int RunTop(const std::vector<std::string>& args);
int RunScale(const std::vector<std::string>& args);
int RunLogs(const std::vector<std::string>& args);
int RunStop(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
