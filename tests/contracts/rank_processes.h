// Ranks as real processes, for tests that kill them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::collective {

// One end of a connection between a rank and the test.
class Channel {
 public:
  // Without a connection Send succeeds and Receive gets some text.
  explicit Channel(Fd fd) : fd_(std::move(fd)) {}
  // Whole messages. Receive fails when the other end has gone or after a
  // minute, which nothing here comes near to.
  absl::Status Send(const std::string& message);
  absl::StatusOr<std::string> Receive();

 private:
  Fd fd_;
};

// The ranks of one test, forked from it; the test must have no other threads.
// The destructor kills and reaps those that are still there.
//
// Or, as MPI initialised before a fork is of no use after it: the ranks of an
// mpirun, which runs this program again with the filter for the current test.
// There, the test is repeated without ranks up to the same object, whose
// constructor runs the body and ends the process.
class RankProcesses {
 public:
  // What a rank does, in its own process. The text says what went wrong; empty
  // = all well.
  using Body = std::function<std::string(int rank, Channel& test)>;

  // Before the first object of a test.
  enum class Launch { kFork, kMpirun };
  // `options` are added to those of mpirun.
  static void Use(Launch launch, std::vector<std::string> options = {});
  // In a rank of an mpirun.
  static bool IsMpiRank();

  RankProcesses(int count, const Body& body);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Takes one message of each of `ranks` and gives all of them to each.
  absl::Status Exchange(const std::vector<int>& ranks);
  Channel& channel(int rank) { return ranks_[rank].channel; }
  void Signal(int rank, int signal);
  // Waits for the rank's end. Text of its body, or how it died.
  std::string Result(int rank);

 private:
  struct Rank {
    // 0 once it has ended.
    pid_t pid;
    Channel channel;
    // To see its end, if it is not our child.
    Fd pidfd;
  };
  void Fork(int count, const Body& body);
  void StartMpirun(int count);
  std::string HowItEnded(Rank& rank);

  std::vector<Rank> ranks_;
  pid_t mpirun_ = 0;
};

// A random number and a page that all ranks of the test share, also those of an
// mpirun. The page is all zeros and is never unmapped. Call once per test,
// before there are ranks.
unsigned SharedSeed();
void* SharedPage();

// A rank's side of RankProcesses::Exchange.
absl::StatusOr<std::vector<std::string>> ExchangeWithAll(
    Channel& test, const std::string& own);

}  // namespace elasticdl::collective
