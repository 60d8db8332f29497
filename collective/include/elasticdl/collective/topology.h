// Which members of a world are connected. Pure.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::collective {

// A world of up to this many members is a full mesh. In a larger one, a rank is
// connected to those at a distance of 1, 2, 4, … in the ring of ranks: enough
// for rings, trees and recursive doubling.
inline constexpr int kFullMeshMembers = 32;

// The ranks that `rank` is connected to over sockets, ascending. Symmetric: if
// a is a peer of b, then b is one of a.
std::vector<int> Peers(int size, int rank, int full_mesh = kFullMeshMembers);
// All other ranks.
std::vector<int> AllPeers(int size, int rank);

// Whose offers each rank of a world needs, by rank; `hosts` by rank, `backend`
// as in BackendOptions. Empty: everybody needs all.
std::vector<std::vector<int>> NeededOffers(
    const std::vector<std::string>& hosts, const std::string& backend);

}  // namespace elasticdl::collective
