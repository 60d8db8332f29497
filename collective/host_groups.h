// Who of a world is on which host, and who leads there.
#pragma once

#include <vector>

#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// In front of errors of a world within a host or of the hosts' leaders: ranks
// that follow are those of that world.
inline constexpr char kPartOfWorld[] = "in a part of the world";

// Hosts in the order of their first rank, which is the leader.
struct HostGroups {
  // Ranks of the world by host, ascending.
  std::vector<std::vector<int>> members;
  // By rank: its host, and its place there.
  std::vector<int> host_of;
  std::vector<int> place_of;

  int num_hosts() const { return static_cast<int>(members.size()); }
  int largest() const;
};
HostGroups GroupByHost(const WorldSpec& world);

// The world among the members of this rank's host.
WorldSpec LocalWorld(const WorldSpec& world, const HostGroups& groups);
// The world among the leaders; this rank must be one.
WorldSpec LeaderWorld(const WorldSpec& world, const HostGroups& groups);

}  // namespace elasticdl::collective
