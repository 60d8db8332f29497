// Runs elasticdl-master once its flags are known.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/signals.h"
#include "log_copier.h"

namespace elasticdl::programs {

// Locks the job's folder, runs the job to its end and returns the exit code. A
// job that cannot be started is noted in its folder, so that clients find out.
// `copier` is set with --log_file_path; it outlives the job, so that the job's
// last lines are copied too.
absl::StatusOr<int> RunMaster(const flags::JobFlags& flags,
                              std::vector<std::string> shown_flags,
                              process::SignalWatcher& signals,
                              std::unique_ptr<LogCopier>& copier);

}  // namespace elasticdl::programs
