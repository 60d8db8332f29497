// MPI for the worlds of this process (`--collective=mpi`).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace elasticdl::collective {

// Of one process. For BackendOptions::mpi.
class MpiUniverse;

struct MpiOptions {
  // libelasticdl_mpi.so. Loaded only if the process was started by an MPI
  // launcher.
  std::string plugin;
  // The environment variables of this process, which show how it was started.
  std::map<std::string, std::string> variables;
  // MPI_Init waits for all processes of the launch. After this time the process
  // continues without MPI.
  absl::Duration init_timeout = absl::Seconds(60);
  // A call into MPI whose result is no longer needed is abandoned after this
  // time, and MPI with it; other calls after four times that. No call takes
  // this long unless it hangs, or the machine is so busy that the thread does
  // not run.
  absl::Duration patience = absl::Seconds(5);
};

// Initialises MPI. Once in the life of a process, which must end with _exit
// afterwards if this returns OK: MPI_Finalize would wait for all processes.
// A process that no MPI launcher has started is not in any universe; its worlds
// do not use MPI. FAILED_PRECONDITION: this MPI, or the way it was started,
// would end or hang the others when one process dies; says what to do instead.
absl::StatusOr<std::shared_ptr<MpiUniverse>> OpenMpi(const MpiOptions& options);

// How many worlds of this process have used MPI.
int64_t NumMpiWorlds(const MpiUniverse& universe);

}  // namespace elasticdl::collective
