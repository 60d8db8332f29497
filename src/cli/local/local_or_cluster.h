// The commands for jobs that exist: for a job on this machine they run here,
// for all others in the program for clusters.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

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
