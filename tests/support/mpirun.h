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
// Messages over UCX, without the part of it that does not survive a death, on
// whatever devices there are. Otherwise ranks on one host use ob1 and shared
// memory.
std::vector<std::string> MpirunUcx();
// Open MPI here has UCX.
bool MpiHasUcx();
// More ranks than cores, each free to use all of them.
std::vector<std::string> MpirunPlacement(int version);

}  // namespace elasticdl::test
