// What the programs of a job (master, worker) share in their main files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/jobdir.h"
#include "flag_set.h"

namespace elasticdl::cli {

// InitLog with the value of --log_level (checked by the flags). Lines go to
// `log_file` too unless that is empty.
absl::Status InitLogFromFlags(const std::string& tag, const std::string& level,
                              const std::string& log_file);

// Takes over the job's lock from the client that started this program, or,
// started by hand (StartedByHand), acquires it. ALREADY_EXISTS when a job of
// that name runs. `go_on`: a run that kept a journal is gone on with.
bool StartedByHand();
absl::StatusOr<jobdir::JobLock> LockJob(const jobdir::JobDir& dir, bool go_on);

// The path of this program's file.
std::string ExecutablePath();

// Where compiled models are kept.
std::string ModelCacheDir();

// MASTER_ADDR and WORKER_ID, as the Python ElasticDL sets them, where the flag
// was not given.
void ReadWorkerEnvironment(const FlagSet& set, std::string* master_addr,
                           int64_t* worker_id);

// The job's token: from --token_file, else $ELASTICDL_TOKEN, else of the local
// job whose master listens on `master_addr`. NOT_FOUND says what was tried.
absl::StatusOr<std::string> FindToken(const std::string& token_file,
                                      const std::string& state_dir,
                                      const std::string& master_addr);

}  // namespace elasticdl::cli
