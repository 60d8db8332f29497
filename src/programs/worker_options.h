// From the flags and the environment of elasticdl-worker to its options.
#pragma once

#include "elasticdl/flags/job_flags.h"
#include "elasticdl/worker.h"

namespace elasticdl::programs {

// All but the token, which is looked up only when the worker needs it. `set`
// says which flags were given: for the others, MASTER_ADDR, WORKER_ID and
// ELASTICDL_WORKER_ADDRESS are used.
worker::WorkerOptions MakeWorkerOptions(const flags::JobFlags& flags,
                                        const flags::FlagSet& set);

}  // namespace elasticdl::programs
