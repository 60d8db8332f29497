// Jobs on this machine: start one, look at it, change it, end it.
#pragma once

#include <string>
#include <vector>

#include "flag_set.h"
#include "job_flags.h"

namespace elasticdl::cli {

// Runs `command` (train, evaluate, predict) with checked flags; the exit code.
int RunLocalJob(const std::string& command, const JobFlags& flags,
                const FlagSet& set);

int RunList(const std::vector<std::string>& args);
int RunTop(const std::vector<std::string>& args);
int RunScale(const std::vector<std::string>& args);
int RunLogs(const std::vector<std::string>& args);
int RunStop(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
