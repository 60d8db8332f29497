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
class RankProcesses {
 public:
  // What a rank does, in its own process. The text says what went wrong; empty
  // = all well.
  using Body = std::function<std::string(int rank, Channel& test)>;

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
    pid_t pid;
    Channel channel;
  };
  std::vector<Rank> ranks_;
};

// A rank's side of RankProcesses::Exchange.
absl::StatusOr<std::vector<std::string>> ExchangeWithAll(
    Channel& test, const std::string& own);

}  // namespace elasticdl::collective
