// Measures all-reduce between ranks on several "hosts": network namespaces
// whose packets a thread of this program carries, with a delay. Needs root and
// /dev/net/tun; the namespaces go when the program ends.
//   allreduce_hosts [--hosts=8] [--ranks=32] [--delays_us=0,100,1000]
//                   [--rounds=3]
// `mesh`: each rank is connected to each, `sparse`: to those at a distance of
// 1, 2, 4, …, as in worlds of more than 32 members; `auto`: shared memory
// within hosts, sockets between one rank of each.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "allreduce_plan.h"
#include "elasticdl/collective/communicator.h"
#include "integration/network.h"
#include "local_ranks.h"

namespace elasticdl::benchmarks {
namespace {

using collective::WorldSpec;

// Seconds by bytes.
using Times = std::map<size_t, double>;

struct Options {
  int hosts = 8;
  int ranks = 32;
  int rounds = 3;
  std::vector<int> delays_us = {0, 100, 1000};
  // Of a rank.
  int rank = -1;
  std::string way;
};

int HostOf(int rank, const Options& options) {
  return rank % options.hosts + 1;
}

// A rank's part: its offer goes to standard output, the offers of all come from
// standard input. Rank 0 says the times.
void RunRank(const Options& options) {
  WorldSpec world;
  world.generation = 1;
  world.rank = options.rank;
  for (int rank = 0; rank < options.ranks; ++rank) {
    world.hosts.push_back(absl::StrCat("host-", HostOf(rank, options)));
  }
  world.secret = "benchmark";
  if (options.way == "sparse") world.full_mesh = 1;
  collective::BackendOptions backend;
  backend.backend = options.way == "auto" ? "auto" : "tcp";
  backend.address = test::Network::Address(HostOf(options.rank, options));
  auto connector = BeginConnect(world, backend);
  Check(connector.status());
  WriteText(STDOUT_FILENO, (*connector)->offer());
  std::vector<std::string> offers;
  for (int rank = 0; rank < options.ranks; ++rank) {
    offers.push_back(ReadText(STDIN_FILENO));
  }
  auto made = (*connector)->Connect(offers, kTimeout);
  Check(made.status());
  collective::Communicator& communicator = **made;
  Measure(
      options.rank == 0, options.ranks,
      [&](float* data, size_t count) {
        Check(communicator.AllReduce(data, count,
                                     collective::DataType::kFloat32, kTimeout));
      },
      [&] { Check(communicator.Barrier(kTimeout)); });
  std::_Exit(0);
}

struct RankProcess {
  pid_t pid = 0;
  int to = -1;
  int from = -1;
};

std::string OwnPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

RankProcess StartRank(const test::Network& network, const Options& options,
                      int rank, const std::string& way) {
  const std::vector<std::string> argv = network.OnHost(
      HostOf(rank, options),
      {OwnPath(), absl::StrCat("--hosts=", options.hosts),
       absl::StrCat("--ranks=", options.ranks), absl::StrCat("--rank=", rank),
       absl::StrCat("--way=", way)});
  std::vector<char*> arguments;
  for (const std::string& word : argv) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  int to[2];
  int from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) Die("no pipes");
  RankProcess process;
  process.pid = fork();
  if (process.pid < 0) Die("cannot fork");
  if (process.pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  process.to = to[1];
  process.from = from[0];
  return process;
}

Times RunWorld(const test::Network& network, const Options& options,
               const std::string& way) {
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    processes.push_back(StartRank(network, options, rank, way));
  }
  std::vector<std::string> offers;
  for (const RankProcess& process : processes) {
    offers.push_back(ReadText(process.from));
  }
  for (const RankProcess& process : processes) {
    for (const std::string& offer : offers) WriteText(process.to, offer);
    close(process.to);
  }
  FILE* const said = fdopen(processes[0].from, "r");
  Times times;
  size_t bytes = 0;
  double seconds = 0;
  while (std::fscanf(said, "%zu %lf", &bytes, &seconds) == 2) {
    times[bytes] = seconds;
  }
  std::fclose(said);
  for (const RankProcess& process : processes) {
    int status = 0;
    waitpid(process.pid, &status, 0);
    if (status != 0) Die("a rank failed");
    if (&process != processes.data()) close(process.from);
  }
  return times;
}

void Run(const Options& options) {
  char folder[] = "/tmp/allreduce_hosts_XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("cannot create a temporary folder");
  auto network = test::Network::Create(options.hosts, folder, /*seed=*/1);
  Check(network.status());
  const std::vector<std::string> ways = {"mesh", "sparse", "auto"};
  for (const int delay : options.delays_us) {
    test::Network::Path path;
    path.delay = absl::Microseconds(delay);
    (*network)->SetAll(path);
    std::map<std::string, std::map<size_t, std::vector<double>>> results;
    for (int round = 0; round < options.rounds; ++round) {
      for (const std::string& way : ways) {
        for (const auto& [bytes, seconds] : RunWorld(**network, options, way)) {
          results[way][bytes].push_back(seconds);
        }
      }
    }
    std::cout << "\n"
              << options.ranks << " ranks on " << options.hosts << " hosts, "
              << delay << " us one way; median of " << options.rounds
              << " rounds, milliseconds\n     bytes";
    for (const std::string& way : ways) {
      std::cout << absl::StrFormat(" %10s", way);
    }
    std::cout << "\n";
    for (const size_t bytes : AllReduceSizes()) {
      std::cout << absl::StrFormat("%10d", bytes);
      for (const std::string& way : ways) {
        std::vector<double>& seconds = results[way][bytes];
        std::sort(seconds.begin(), seconds.end());
        std::cout << absl::StrFormat(" %10.2f",
                                     1e3 * seconds[seconds.size() / 2]);
      }
      std::cout << std::endl;
    }
  }
  network->reset();
  if (std::system(absl::StrCat("rm -rf ", folder).c_str()) != 0) {
    Die(absl::StrCat("cannot remove ", folder));
  }
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> argument =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto& [name, value] = argument;
    bool good = true;
    if (name == "--hosts") {
      good = absl::SimpleAtoi(value, &options.hosts);
    } else if (name == "--ranks") {
      good = absl::SimpleAtoi(value, &options.ranks);
    } else if (name == "--rounds") {
      good = absl::SimpleAtoi(value, &options.rounds);
    } else if (name == "--rank") {
      good = absl::SimpleAtoi(value, &options.rank);
    } else if (name == "--way") {
      options.way = value;
    } else if (name == "--delays_us") {
      options.delays_us.clear();
      for (const auto text : absl::StrSplit(value, ',')) {
        options.delays_us.push_back(std::atoi(std::string(text).c_str()));
      }
    } else {
      good = false;
    }
    if (!good) Die(absl::StrCat("bad argument ", argv[i]));
  }
  return options;
}

}  // namespace
}  // namespace elasticdl::benchmarks

int main(int argc, char** argv) {
  const auto options = elasticdl::benchmarks::Parse(argc, argv);
  if (options.rank >= 0) elasticdl::benchmarks::RunRank(options);
  elasticdl::benchmarks::Run(options);
  return 0;
}
