// Which ways to start and run MPI survive the death of a rank. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace elasticdl::collective {

using Variables = std::map<std::string, std::string>;

// Is it this command, of Open MPI?
bool IsMpirun(const std::vector<std::string>& command);

// Was this process started by Open MPI's mpirun? False if by no MPI launcher.
// FAILED_PRECONDITION, with the reason and what to do instead, if by one that
// ends the others when one dies. `parent` is the command of the parent process.
absl::StatusOr<bool> IsStartedByMpirun(const Variables& variables,
                                       const std::vector<std::string>& parent);

// What the initialised MPI uses.
struct MpiTransport {
  // Open MPI's modules that are loaded, without path and ending:
  // "mca_pml_ob1".
  std::set<std::string> modules;
  bool one_host = false;
  // As in ElasticdlMpiFacts. Modules may be part of the library, as they are in
  // Open MPI 5; then this is all that is known.
  std::string pml = "";
};
// The modules in a text like /proc/self/maps.
std::set<std::string> FindMpiModules(const std::string& maps);

// FAILED_PRECONDITION as above.
absl::Status CheckTransport(const MpiTransport& transport,
                            const Variables& variables);

}  // namespace elasticdl::collective
