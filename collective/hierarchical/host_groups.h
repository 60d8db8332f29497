// Which members are on which host, and who is its leader.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// Turns an error of the world within a host, or of the leaders' world, into one
// of the whole world. Ranks in its message are those of the part. It blames
// nobody: a member that waits for its leader cannot know for whom the leader
// waits.
absl::Status InAPart(const absl::Status& status);

// Hosts in the order of their first rank, which is the leader.
struct HostGroups {
  // Ranks of the world by host, ascending.
  std::vector<std::vector<int>> members;
  // By rank: its host, and its index there.
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
