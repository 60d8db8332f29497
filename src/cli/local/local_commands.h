// Jobs on this machine: start one, look at it, change it, end it.
#pragma once

#include <string>
#include <vector>

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

// list, top, open, report, scale, kill, logs, stop: --job_name may be omitted
// if one job runs.
int RunList(const std::vector<std::string>& args);
int RunTop(const std::vector<std::string>& args);
int RunOpen(const std::vector<std::string>& args);
int RunReport(const std::vector<std::string>& args);
int RunScale(const std::vector<std::string>& args);
int RunKill(const std::vector<std::string>& args);
int RunLogs(const std::vector<std::string>& args);
int RunStop(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
