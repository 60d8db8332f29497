// How the reasons of membership decisions refer to workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elasticdl/rendezvous/membership.h"

namespace elasticdl::rendezvous::text {

std::vector<int64_t> Ids(const std::vector<WorldMember>& members);

// "worker 3", "workers 3, 4", "workers 3, 4, 5, 6, 7, 8, 9, 10 and 90 more".
std::string Workers(const std::vector<int64_t>& ids);

}  // namespace elasticdl::rendezvous::text
