// Measures how long a world of many processes on this host takes to form,
// without a master: from the start of the processes, and from when each has the
// offers of all, until all have passed a barrier.
//   world_start [--backends=tcp,auto] [--rounds=5] [N...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "local_ranks.h"

namespace elasticdl::benchmarks {
namespace {

struct Times {
  double all = 0;
  double connecting = 0;
};

Times FormWorld(const std::string& backend, int size) {
  const absl::Time start = absl::Now();
  FILE* const output = RunRanks(
      backend, size,
      [](const std::unique_ptr<collective::Communicator>& communicator) {
        Check(communicator->Barrier(kTimeout));
        if (communicator->rank() == 0) std::puts("formed");
        std::fflush(stdout);
        // Nobody leaves before all have seen that.
        Check(communicator->Barrier(kTimeout));
      });
  const absl::Time offered = absl::Now();
  if (std::fgetc(output) == EOF) Die("no world");
  const absl::Time formed = absl::Now();
  while (std::fgetc(output) != EOF) {
  }
  FinishRanks(output);
  return {absl::ToDoubleMilliseconds(formed - start),
          absl::ToDoubleMilliseconds(formed - offered)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const std::string& backend, int size, int rounds) {
  std::vector<double> all;
  std::vector<double> connecting;
  for (int round = 0; round < rounds; ++round) {
    const Times times = FormWorld(backend, size);
    all.push_back(times.all);
    connecting.push_back(times.connecting);
  }
  std::printf("%9d %7s %12.1f %9.1f %12.1f %9.1f\n", size, backend.c_str(),
              Median(all), *std::max_element(all.begin(), all.end()),
              Median(connecting),
              *std::max_element(connecting.begin(), connecting.end()));
  std::fflush(stdout);
}

}  // namespace
}  // namespace elasticdl::benchmarks

int main(int argc, char** argv) {
  std::vector<std::string> backends = {"tcp", "auto"};
  int rounds = 5;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--backends=")) {
      backends = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "--rounds=")) {
      rounds = std::max(1, std::atoi(argument.data()));
    } else if (std::atoi(argv[i]) > 1) {
      sizes.push_back(std::atoi(argv[i]));
    } else {
      std::fprintf(stderr,
                   "world_start [--backends=tcp,auto] [--rounds=N] [N...]\n");
      return 2;
    }
  }
  if (sizes.empty()) sizes = {64};
  std::printf(
      "processes backend  from start, ms  most   from offers, ms  most\n");
  for (const int size : sizes) {
    for (const std::string& backend : backends) {
      elasticdl::benchmarks::Measure(backend, size, rounds);
    }
  }
  return 0;
}
