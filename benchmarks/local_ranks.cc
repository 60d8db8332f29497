#include "local_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

namespace elasticdl::benchmarks {
namespace {

using collective::BackendOptions;
using collective::Communicator;
using collective::WorldSpec;

// The pids of the running ranks.
std::vector<pid_t>& Children() {
  static auto* const children = new std::vector<pid_t>;
  return *children;
}

std::string ReadExactly(int fd, size_t bytes) {
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = read(fd, text.data() + done, bytes - done);
    if (got <= 0) Die("a rank exited too early");
    done += static_cast<size_t>(got);
  }
  return text;
}

struct RankPipes {
  int to_rank[2];
  int to_parent[2];
};

std::unique_ptr<Communicator> Connect(const std::string& backend, int rank,
                                      int size, const RankPipes& pipes) {
  WorldSpec world;
  world.generation = 1;
  world.rank = rank;
  world.hosts.assign(static_cast<size_t>(size), collective::LocalHost());
  world.secret = "benchmark";
  BackendOptions options;
  options.backend = backend;
  auto connector = BeginConnect(world, options);
  Check(connector.status());
  WriteText(pipes.to_parent[1], (*connector)->offer());
  std::vector<std::string> offers;
  for (int i = 0; i < size; ++i) offers.push_back(ReadText(pipes.to_rank[0]));
  auto communicator = (*connector)->Connect(offers, kTimeout);
  Check(communicator.status());
  return *std::move(communicator);
}

}  // namespace

void Die(const std::string& why) {
  std::cerr << program_invocation_short_name << ": " << why << "\n";
  _exit(1);
}

void Check(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

void WriteText(int fd, const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  std::string framed(reinterpret_cast<const char*>(&size), sizeof(size));
  framed += text;
  if (write(fd, framed.data(), framed.size()) !=
      static_cast<ssize_t>(framed.size())) {
    Die("cannot write to a pipe");
  }
}

std::string ReadText(int fd) {
  uint32_t size = 0;
  const std::string head = ReadExactly(fd, sizeof(size));
  head.copy(reinterpret_cast<char*>(&size), sizeof(size));
  return ReadExactly(fd, size);
}

FILE* RunRanks(const std::string& backend, int size,
               const RankFunction& function) {
  std::vector<RankPipes> pipes(static_cast<size_t>(size));
  // Otherwise the forked ranks would print it again.
  std::cout.flush();
  for (int rank = 0; rank < size; ++rank) {
    RankPipes& own = pipes[static_cast<size_t>(rank)];
    if (pipe(own.to_rank) != 0 || pipe(own.to_parent) != 0) Die("no pipes");
    const pid_t child = fork();
    if (child < 0) Die("cannot fork");
    if (child == 0) {
      auto communicator = Connect(backend, rank, size, own);
      dup2(own.to_parent[1], STDOUT_FILENO);
      function(std::move(communicator));
      std::cout.flush();
      std::fflush(stdout);
      _exit(0);
    }
    close(own.to_parent[1]);
    Children().push_back(child);
  }
  std::vector<std::string> offers;
  for (const RankPipes& rank : pipes) {
    offers.push_back(ReadText(rank.to_parent[0]));
  }
  for (const RankPipes& rank : pipes) {
    for (const std::string& offer : offers) WriteText(rank.to_rank[1], offer);
  }
  for (size_t rank = 0; rank < pipes.size(); ++rank) {
    close(pipes[rank].to_rank[0]);
    close(pipes[rank].to_rank[1]);
    if (rank > 0) close(pipes[rank].to_parent[0]);
  }
  return fdopen(pipes[0].to_parent[0], "r");
}

void FinishRanks(FILE* output) {
  std::fclose(output);
  for (const pid_t child : Children()) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) Die("a rank failed");
  }
  Children().clear();
}

}  // namespace elasticdl::benchmarks
