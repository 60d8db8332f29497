#include "elasticdl/collective/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/backends.h"

namespace elasticdl::collective {

bool IsBackend(const std::string& name) {
  return name == "auto" || name == "shm" || name == "tcp" || name == "gloo" ||
         name == "mpi" || name == "nccl";
}

absl::StatusOr<Backend> ChooseBackend(const WorldSpec& world,
                                      const std::string& name) {
  if (!IsBackend(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown collective backend \"", name,
                     "\" (auto, shm, tcp, gloo, mpi, nccl)"));
  }
  if (world.rank < 0 || world.rank >= world.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " in a world of ", world.size(), " members"));
  }
  if (world.size() == 1) return Backend::kSingle;
  std::map<std::string, int> hosts;
  int most = 0;  // on one host
  for (const std::string& host : world.hosts) {
    most = std::max(most, ++hosts[host]);
  }
  if (name == "gloo") return Backend::kGloo;
  if (name == "mpi") return Backend::kMpi;
  if (name == "nccl") return Backend::kNccl;
  if (name == "shm" && hosts.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm needs all members on one host, these are on ",
                     hosts.size()));
  }
  if (name == "shm") return Backend::kShm;
  // No two members share a host, or more do than shared memory supports.
  if (name == "tcp" || most == 1 || most > kMaxShmMembers) return Backend::kTcp;
  return hosts.size() == 1 ? Backend::kShm : Backend::kHierarchical;
}

std::vector<int> AllPeers(int size, int rank) {
  std::vector<int> peers;
  peers.reserve(static_cast<size_t>(size));
  for (int other = 0; other < size; ++other) {
    if (other != rank) peers.push_back(other);
  }
  return peers;
}

std::vector<int> Peers(int size, int rank, int full_mesh) {
  if (size <= full_mesh) return AllPeers(size, rank);
  std::set<int> peers;
  for (int distance = 1; distance < size; distance *= 2) {
    peers.insert((rank + distance) % size);
    peers.insert((rank - distance + size) % size);
  }
  return {peers.begin(), peers.end()};
}

std::vector<std::vector<int>> NeededOffers(
    const std::vector<std::string>& hosts, const std::string& backend) {
  WorldSpec world;
  world.hosts = hosts;
  const int size = world.size();
  if (size <= kFullMeshMembers) return {};
  const auto chosen = ChooseBackend(world, backend);
  std::vector<std::vector<int>> needed(hosts.size());
  if (chosen.ok() && *chosen == Backend::kTcp) {
    for (int rank = 0; rank < size; ++rank) needed[rank] = Peers(size, rank);
    return needed;
  }
  if (!chosen.ok() || *chosen != Backend::kHierarchical) return {};
  // Everybody needs those on its host, leaders also the peers among them.
  std::map<std::string, std::vector<int>> by_host;
  std::vector<int> leaders;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<int>& here = by_host[hosts[rank]];
    if (here.empty()) leaders.push_back(rank);
    here.push_back(rank);
  }
  for (int rank = 0; rank < size; ++rank) needed[rank] = by_host[hosts[rank]];
  const int num_leaders = static_cast<int>(leaders.size());
  for (int leader = 0; leader < num_leaders; ++leader) {
    std::vector<int>& mine = needed[leaders[leader]];
    for (const int peer : Peers(num_leaders, leader)) {
      mine.push_back(leaders[peer]);
    }
    std::sort(mine.begin(), mine.end());
  }
  return needed;
}

}  // namespace elasticdl::collective
