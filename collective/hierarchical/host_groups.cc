#include "hierarchical/host_groups.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/blame.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {

absl::Status InAPart(const absl::Status& status) {
  return Blame(-1, Annotate(status, "in a part of the world"));
}

int HostGroups::largest() const {
  size_t largest = 0;
  for (const std::vector<int>& ranks : members) {
    largest = std::max(largest, ranks.size());
  }
  return static_cast<int>(largest);
}

HostGroups GroupByHost(const WorldSpec& world) {
  HostGroups groups;
  std::map<std::string, int> index;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto [at, is_new] =
        index.try_emplace(world.hosts[rank], groups.num_hosts());
    if (is_new) groups.members.emplace_back();
    std::vector<int>& ranks = groups.members[at->second];
    groups.host_of.push_back(at->second);
    groups.place_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  return groups;
}

WorldSpec LocalWorld(const WorldSpec& world, const HostGroups& groups) {
  WorldSpec local = world;
  local.rank = groups.place_of[world.rank];
  local.hosts.assign(groups.members[groups.host_of[world.rank]].size(),
                     world.hosts[world.rank]);
  return local;
}

WorldSpec LeaderWorld(const WorldSpec& world, const HostGroups& groups) {
  WorldSpec leaders = world;
  leaders.rank = groups.host_of[world.rank];
  leaders.hosts.clear();
  for (const std::vector<int>& ranks : groups.members) {
    leaders.hosts.push_back(world.hosts[ranks.front()]);
  }
  return leaders;
}

}  // namespace elasticdl::collective
