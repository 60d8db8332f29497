// elasticdl open: the page of a job in a browser.
#pragma once

#include <string>
#include <vector>

#include "job_handle.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {

// Parses the flags, finds the job, opens its page and returns the exit code.
// The page of a job on a cluster is there until the job has ended.
int OpenCommand(const std::vector<std::string>& args, const JobFinder& find);

// Waits for the end of a job whose page is forwarded and says how it ended;
// others are served by their master. Ctrl-C ends the process.
void ForwardPage(const JobPage& page, JobHandle& job);

}  // namespace elasticdl::cli
