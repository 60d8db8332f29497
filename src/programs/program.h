// What the programs of a job (master, worker, server) share in their main
// files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/jobdir.h"

namespace elasticdl::programs {

// InitLog with the values of --log_level and --log_format (checked by the
// flags). Lines go to `log_file` too unless that is empty.
absl::Status InitLogFromFlags(const std::string& tag,
                              const flags::JobFlags& flags,
                              const std::string& log_file);

// Takes over the job's lock from the client that started this program, or,
// started by hand (StartedByHand), acquires it. ALREADY_EXISTS when a job of
// that name runs. `go_on`: continues a run of `owner` that kept a journal.
bool StartedByHand();
absl::StatusOr<jobdir::JobLock> LockJob(const jobdir::JobDir& dir, bool go_on,
                                        const std::string& owner);

// The path of this program's file.
std::string ExecutablePath();

// Where compiled models are kept.
std::string ModelCacheDir();

// MASTER_ADDR and WORKER_ID, as the Python ElasticDL sets them, where the flag
// was not given.
void ReadMasterAddress(const flags::FlagSet& set, std::string* master_addr);
void ReadWorkerEnvironment(const flags::FlagSet& set, std::string* master_addr,
                           int64_t* worker_id);

// A token that was given to this program: from --token_file, else
// $ELASTICDL_TOKEN; "" = none. INVALID_ARGUMENT for what cannot be one.
absl::StatusOr<std::string> GivenToken(const std::string& token_file);

// A worker's or server's token: the given one, else that of the local job whose
// master listens on `master_addr`. NOT_FOUND says what was tried.
absl::StatusOr<std::string> FindToken(const std::string& token_file,
                                      const std::string& state_dir,
                                      const std::string& master_addr);

// StartSentinel, first thing in main. Not under Slurm, which waits until
// nothing is left of a step's group of processes, while nobody reaps the
// sentinel there.
void StartSentinelUnlessSlurm();

// As many open files as the system allows: a world of some hundred workers on
// one host, or as many connections to a server, needs more than the usual
// 1,024.
void RaiseFileLimit();

}  // namespace elasticdl::programs
