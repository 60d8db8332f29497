// From the flags and the environment of elasticdl-ps to its options.
#pragma once

#include "absl/status/statusor.h"
#include "elasticdl/flags/job_flags.h"
#include "ps_process.h"

namespace elasticdl::programs {

// `set` says which flags were given: for the others, MASTER_ADDR and
// ELASTICDL_WORKER_ADDRESS are used. Without --ps_log, the log is in the folder
// of the local job whose master listens on --master_addr. NOT_FOUND says what
// is missing: the token, or a place for the log.
absl::StatusOr<PsOptions> MakePsOptions(const flags::JobFlags& flags,
                                        const flags::FlagSet& set);

}  // namespace elasticdl::programs
