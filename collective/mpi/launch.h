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
  // Open MPI's components that move messages: "pml_ob1", "btl_vader".
  std::set<std::string> components;
  // Ranks.
  int size = 0;
  bool one_host = false;
};
// The components in the names of MPI_T's categories (ElasticdlMpiFacts).
std::set<std::string> FindMpiComponents(const std::string& parts);

// FAILED_PRECONDITION as above.
absl::Status CheckTransport(const MpiTransport& transport,
                            const Variables& variables);

}  // namespace elasticdl::collective
