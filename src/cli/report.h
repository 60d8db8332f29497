// elasticdl report: the page of a job as one file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {

// An event log as the response of /api/v1/update. INVALID_ARGUMENT names the
// line that is no event; a last line that was cut short is left out.
absl::StatusOr<std::string> ReadEventLog(const std::string& path);

// Parses the flags, finds the job, writes the file and returns the exit code.
int ReportCommand(const std::vector<std::string>& args, const JobFinder& find);

}  // namespace elasticdl::cli
