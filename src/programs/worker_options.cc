#include "worker_options.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "elasticdl/flags/environment.h"
#include "program.h"

namespace elasticdl::programs {

worker::WorkerOptions MakeWorkerOptions(const flags::JobFlags& flags,
                                        const flags::FlagSet& set) {
  worker::WorkerOptions options;
  options.master_addr = flags.master_addr;
  options.worker_id = flags.worker_id;
  ReadWorkerEnvironment(set, &options.master_addr, &options.worker_id);
  options.worker_address = flags.worker_address.empty()
                               ? flags::GetEnv("ELASTICDL_WORKER_ADDRESS")
                               : flags.worker_address;
  options.model_zoo = flags.model_zoo;
  options.model_def = flags.model_def;
  options.model_params = flags.model_params;
  options.num_threads = static_cast<int>(flags.num_threads);
  if (set.IsSet("device")) options.device = flags.device;
  // Not in the user's home, which several hosts may share.
  options.gpu_lock_dir = absl::StrCat("/tmp/elasticdl-gpus-", getuid());
  options.executable = ExecutablePath();
  options.model_cache_dir = ModelCacheDir();
  options.mpi_plugin =
      flags::ProgramBeside("../lib/elasticdl/libelasticdl_mpi.so");
  options.nccl_plugin =
      flags::ProgramBeside("../lib/elasticdl/libelasticdl_nccl.so");
  options.environment = flags::Environment();
  return options;
}

}  // namespace elasticdl::programs
