// Open MPI's mpirun, whose options have other names since version 5.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::test {

// From what `mpirun --version` prints; 0: that is not Open MPI's.
int MpirunVersion(const std::string& text);
// Of the mpirun of this machine; 0: there is none.
int FindMpirunVersion();

// Ranks survive the death of one.
std::vector<std::string> MpirunRecovery(int version);
// More ranks than cores, each free to use all of them.
std::vector<std::string> MpirunPlacement(int version);

}  // namespace elasticdl::test
