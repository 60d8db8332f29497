// Talking to the master of a job on this machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/jobdir.h"
#include "job_handle.h"

namespace elasticdl::cli {

// The job called `name`; with an empty name the only one that runs. NOT_FOUND:
// there is none; FAILED_PRECONDITION: several run. Both name them.
absl::StatusOr<jobdir::JobDir> FindJob(const std::string& state_dir,
                                       const std::string& name);

// One request to the status server of the job. The body of the answer;
// UNAVAILABLE when the master does not answer, FAILED_PRECONDITION when the job
// does not run, INVALID_ARGUMENT, … with the master's words.
absl::StatusOr<std::string> HttpGet(const jobdir::JobDir& dir,
                                    const std::string& path);
absl::StatusOr<std::string> HttpPost(const jobdir::JobDir& dir,
                                     const std::string& path);

// A descriptor that becomes readable when the job's master has ended; empty
// when it does not run.
Fd WatchMaster(const jobdir::JobDir& dir);

// How the job ended, from its events. Empty state when it has not (or was
// killed).
JobEnd ReadJobEnd(const jobdir::JobDir& dir);

// Writes logs of the job to standard output.
absl::Status PrintLocalLogs(const jobdir::JobDir& job,
                            const LogRequest& request);

}  // namespace elasticdl::cli
