// Measures all-reduce between local ranks for different sizes: ElasticDL's
// backends shm, tcp and mpi, and the libraries Gloo and Open MPI, interleaved.
//   allreduce_bench [--ranks=2,4] [--rounds=5] [--only=shm,mpi,MPI_Allreduce]
// gloo is gloo::allreduce, gloo-chunked the older AllreduceRingChunked.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "allreduce_bind.h"
#include "allreduce_plan.h"
#include "elasticdl/collective/communicator.h"
#include "local_ranks.h"

namespace elasticdl::benchmarks {
namespace {

using collective::Communicator;
using collective::DataType;

constexpr absl::Duration kTimeout = absl::Seconds(60);

// Seconds by bytes.
using Times = std::map<size_t, double>;

Times ReadTimes(FILE* file) {
  Times times;
  size_t bytes = 0;
  double seconds = 0;
  while (std::fscanf(file, "%zu %lf", &bytes, &seconds) == 2) {
    times[bytes] = seconds;
  }
  return times;
}

void RunRank(Communicator& communicator) {
  Bind(communicator.rank(), communicator.size());
  Measure(
      communicator.rank() == 0, communicator.size(),
      [&](float* data, size_t count) {
        Check(
            communicator.AllReduce(data, count, DataType::kFloat32, kTimeout));
      },
      [&] { Check(communicator.Barrier(kTimeout)); });
}

Times RunBackend(const std::string& backend, int size) {
  FILE* const results =
      RunRanks(backend, size, [](std::unique_ptr<Communicator> communicator) {
        RunRank(*communicator);
      });
  const Times times = ReadTimes(results);
  FinishRanks(results);
  return times;
}

std::string OwnFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  return program.substr(0, program.rfind('/'));
}

// Parses the times that a command prints.
Times RunCommand(const std::string& command) {
  std::cout.flush();
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return {};
  const Times times = ReadTimes(output);
  pclose(output);
  return times;
}

// Empty if mpirun or the program is missing.
Times RunMpi(const std::string& kind, int size) {
  const std::string program = OwnFolder() + "/allreduce_mpi";
  if (access(program.c_str(), X_OK) != 0) return {};
  // ElasticDL has two threads in each rank, which must not share a core.
  const char* const more =
      kind == "elasticdl" ? " --enable-recovery --bind-to none" : "";
  return RunCommand(absl::StrCat("mpirun --allow-run-as-root --oversubscribe",
                                 more, " -np ", size, " ", program, " ", kind,
                                 " 2>/dev/null"));
}

Times RunGloo(const std::string& kind, int size) {
  const std::string program = OwnFolder() + "/allreduce_gloo";
  if (access(program.c_str(), X_OK) != 0) return {};
  char folder[] = "/tmp/allreduce_gloo_XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("cannot create a temporary folder");
  std::string command;
  for (int rank = 0; rank < size; ++rank) {
    absl::StrAppend(&command, program, " ", kind, " ", rank, " ", size, " ",
                    folder, " & ");
  }
  const Times times = RunCommand(
      absl::StrCat("(", command, "wait) 2>/dev/null; rm -r ", folder));
  return times;
}

Times RunPeer(const std::string& peer, int size) {
  if (peer == "mpi") return RunMpi("elasticdl", size);
  if (peer == "MPI_Allreduce") return RunMpi("library", size);
  if (peer == "gloo") return RunGloo("plain", size);
  if (peer == "gloo-chunked") return RunGloo("chunked", size);
  return RunBackend(peer, size);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  std::vector<int> ranks = {2, 4};
  int rounds = 5;
  std::vector<std::string> peers = {"shm",          "tcp", "gloo",
                                    "gloo-chunked", "mpi", "MPI_Allreduce"};
};

using Rounds = std::vector<Times>;

// Ratio of a peer's time to shm's time per round; above 1, shm is faster.
std::string Ratio(const Rounds& peer, const Rounds& own, size_t bytes) {
  std::vector<double> ratios;
  for (size_t i = 0; i < peer.size(); ++i) {
    if (peer[i].count(bytes) == 0 || own[i].count(bytes) == 0) continue;
    ratios.push_back(peer[i].at(bytes) / own[i].at(bytes));
  }
  if (ratios.empty()) return "?";
  std::sort(ratios.begin(), ratios.end());
  return absl::StrFormat("%5.2f (%.2f-%.2f)", Median(ratios), ratios.front(),
                         ratios.back());
}

void PrintTable(int ranks, const Options& options,
                const std::map<std::string, Rounds>& results) {
  std::cout << "\n"
            << ranks << " ranks, median of " << options.rounds
            << " rounds, microseconds; ratio = peer / shm per round (least-"
               "greatest)\n";
  std::cout << absl::StrFormat("%10s", "bytes");
  for (const std::string& peer : options.peers) {
    std::cout << absl::StrFormat(" %13s", peer);
    if (peer != "shm") std::cout << absl::StrFormat(" %-18s", "  ratio");
  }
  std::cout << "\n";
  for (const size_t bytes : AllReduceSizes()) {
    std::cout << absl::StrFormat("%10d", bytes);
    for (const std::string& peer : options.peers) {
      const Rounds& rounds = results.at(peer);
      if (rounds.empty() || rounds[0].count(bytes) == 0) {
        std::cout << absl::StrFormat(" %13s %-18s", "missing", "");
        continue;
      }
      std::vector<double> times;
      for (const Times& round : rounds) {
        if (round.count(bytes) > 0) times.push_back(round.at(bytes) * 1e6);
      }
      std::cout << absl::StrFormat(" %13.2f", Median(times));
      if (peer == "shm" || results.count("shm") == 0) continue;
      std::cout << absl::StrFormat(" %-18s",
                                   Ratio(rounds, results.at("shm"), bytes));
    }
    std::cout << "\n";
  }
}

void Run(int ranks, const Options& options) {
  std::map<std::string, Rounds> results;
  for (int round = 0; round < options.rounds; ++round) {
    for (const std::string& peer : options.peers) {
      results[peer].push_back(RunPeer(peer, ranks));
    }
  }
  for (const auto& [peer, rounds] : results) {
    if (rounds[0].empty()) {
      std::cout << "peer " << peer << " is missing: install "
                << (absl::StartsWith(peer, "gloo")
                        ? "libgloo-dev"
                        : "libopenmpi-dev openmpi-bin")
                << " and run CMake again\n";
    }
  }
  PrintTable(ranks, options, results);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--rounds=")) {
      if (!absl::SimpleAtoi(argument, &options.rounds)) Die("bad --rounds");
    } else if (absl::ConsumePrefix(&argument, "--ranks=")) {
      options.ranks.clear();
      for (const auto text : absl::StrSplit(argument, ',')) {
        options.ranks.push_back(std::atoi(std::string(text).c_str()));
      }
    } else if (absl::ConsumePrefix(&argument, "--only=")) {
      options.peers = absl::StrSplit(argument, ',');
    } else {
      Die(absl::StrCat("unknown argument ", argument));
    }
  }
  return options;
}

}  // namespace
}  // namespace elasticdl::benchmarks

int main(int argc, char** argv) {
  const auto options = elasticdl::benchmarks::ParseOptions(argc, argv);
  for (const int ranks : options.ranks) {
    elasticdl::benchmarks::Run(ranks, options);
  }
  return 0;
}
