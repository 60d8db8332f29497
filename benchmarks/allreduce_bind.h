// Placement of the ranks of the all-reduce benchmark.
#pragma once

#include <sched.h>
#include <unistd.h>

namespace elasticdl::benchmarks {

// Pins the calling thread to one core, as mpirun does if there are enough
// cores.
inline void Bind(int rank, int size) {
  if (size > sysconf(_SC_NPROCESSORS_ONLN)) return;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(rank, &core);
  sched_setaffinity(0, sizeof(core), &core);
}

}  // namespace elasticdl::benchmarks
