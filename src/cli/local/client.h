// Requests to the master of a job on this machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/jobdir.h"
#include "job_handle.h"

namespace elasticdl::cli {

// One request to the job's status page. Returns the body of the response.
// UNAVAILABLE if the master does not answer, FAILED_PRECONDITION if the job is
// not running; other errors have the master's message.
absl::StatusOr<std::string> HttpGet(const jobdir::JobDir& dir,
                                    const std::string& path);
absl::StatusOr<std::string> HttpPost(const jobdir::JobDir& dir,
                                     const std::string& path);

// A descriptor that becomes readable when the job has ended: its client, if
// there is one that starts a killed master again, else its master. Empty if it
// is not running.
Fd WatchJobEnd(const jobdir::JobDir& dir);

// How the job ended, from its events. Empty state when it has not (or was
// killed).
JobEnd ReadJobEnd(const jobdir::JobDir& dir);

// Prints logs of the job.
absl::Status PrintLocalLogs(const jobdir::JobDir& job,
                            const LogRequest& request);

}  // namespace elasticdl::cli
