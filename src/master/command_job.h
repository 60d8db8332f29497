// A job that runs the user's command in every worker (--job_command) instead of
// the built-in training loop.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "elasticdl/master.h"

namespace elasticdl::master {

// A master that only keeps the workers running, by the rules of pod_manager.h.
// Each runs `bash -c <job_command>` with WORKER_ID and WORKER_NUM in its
// environment. The job succeeds when the command of every slot has ended with
// exit code 0. If one fails too often, the job fails after the others have
// ended.
absl::StatusOr<std::unique_ptr<Master>> CreateCommandJob(MasterOptions options);

}  // namespace elasticdl::master
