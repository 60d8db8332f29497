// A new world, for the event log and for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace elasticdl::master {

// A world of workers that is level and trains.
struct WorldChange {
  int64_t generation = 0;
  std::vector<int64_t> members;  // By rank.
  std::string cause;
  // How long nobody trained.
  absl::Duration pause;
  int64_t step = 0;
};

}  // namespace elasticdl::master
