// Measures how fast the master re-forms worlds of many workers. Starts a real
// master and attaches simulated workers (simulated_fleet.h). Then one after
// another dies.
//
//   master_scale [--master=build/bin/elasticdl-master] [--rounds=10] [N...]
//
// Prints, for each N, the time from the death until all others have what they
// need for the next world, and the CPU time of the master and of the simulated
// workers.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "simulated_fleet.h"
#include "started_master.h"

namespace elasticdl {
namespace {

void Measure(const std::string& program, int workers, int rounds) {
  const Master master = StartMaster(program, workers);
  const auto fleet = std::make_unique<Fleet>(master.port, master.token);
  const double joining = CpuSeconds(master.pid);
  const absl::Time start = absl::Now();
  fleet->Start(workers);
  fleet->Form(0);
  const double joined = absl::ToDoubleSeconds(absl::Now() - start);
  const int64_t worlds = fleet->generation();
  std::vector<double> times;
  const double cpu = CpuSeconds(master.pid);
  const double own_cpu = CpuSeconds(getpid());
  for (int round = 0; round < rounds; ++round) {
    const int64_t generation = fleet->generation();
    const absl::Time death = absl::Now();
    // Sometimes kill rank 0.
    fleet->Kill(round % 3 == 0 ? 0 : fleet->size() / 2);
    fleet->Form(generation);
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - death));
  }
  std::sort(times.begin(), times.end());
  const double per_death = 1000.0 / rounds;
  printf("%7d %11.0f %7d %12.0f %12.1f %10.1f %13.1f %11.1f %12.1f %8.0f\n",
         workers, joined * 1000, static_cast<int>(worlds),
         (cpu - joining) * 1000, times[times.size() / 2], times.back(),
         (CpuSeconds(master.pid) - cpu) * per_death,
         (CpuSeconds(master.pid) - cpu) * per_death * 1000 / workers,
         (CpuSeconds(getpid()) - own_cpu) * per_death, Megabytes(master.pid));
  fflush(stdout);
  EndMaster(master);
}

}  // namespace
}  // namespace elasticdl

int main(int argc, char** argv) {
  std::string program = "build/bin/elasticdl-master";
  int rounds = 10;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--master=", 0) == 0) {
      program = argument.substr(9);
    } else if (argument.rfind("--rounds=", 0) == 0) {
      rounds = atoi(argument.c_str() + 9);
    } else if (atoi(argv[i]) > 2) {
      sizes.push_back(atoi(argv[i]));
    } else {
      fprintf(stderr, "master_scale [--master=PROGRAM] [--rounds=N] [N...]\n");
      return 2;
    }
  }
  if (sizes.empty()) sizes = {10, 100, 1000};
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  printf(
      "                              master |  a death                master   "
      " "
      "per member   workers'   master\n"
      "workers  all in, ms  worlds  CPU ms   re-form p50, ms    max, ms   CPU, "
      "ms   "
      "CPU, us   CPU, ms   RSS, MB\n");
  for (const int size : sizes) {
    elasticdl::Measure(program, size, std::min(rounds, size - 1));
  }
  return 0;
}
