// Placement of the ranks of the all-reduce benchmark.
#pragma once

#include <sched.h>
#include <unistd.h>

namespace elasticdl::benchmarks {

// As mpirun does when there are enough cores: the calling thread stays on one.
inline void Bind(int rank, int size) {
  if (size > sysconf(_SC_NPROCESSORS_ONLN)) return;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(rank, &core);
  sched_setaffinity(0, sizeof(core), &core);
}

}  // namespace elasticdl::benchmarks
