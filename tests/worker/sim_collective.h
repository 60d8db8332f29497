// Worlds whose members are actors of one process. They break as real ones do:
// when a member is gone, operations that all had reached may have completed for
// some members and not for others; what comes later fails for all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "elasticdl/collective/communicator.h"

namespace elasticdl::worker::test {

// Thread-compatible: actors take turns.
class SimNetwork {
 public:
  explicit SimNetwork(std::mt19937& random) : random_(random) {}

  // A worker begins to connect.
  absl::StatusOr<std::unique_ptr<collective::Connector>> Begin(
      int64_t worker_id, const collective::WorldSpec& spec);
  // The process is gone: its connections are, too.
  void Lost(int64_t worker_id);

  // How often a connection cannot be made, of 1000.
  int failures_per_mille = 0;
  // How many worlds can go on without lost members, of 1000.
  int shrinks_per_mille = 0;
  // How many sums that fail leave their data as it was, of 1000.
  int left_alone_per_mille = 500;
  // How many worlds went on without members that were lost.
  int num_shrunk = 0;

 private:
  friend class SimConnector;
  friend class SimCommunicator;

  // One collective operation.
  struct Operation {
    std::string name;
    std::vector<std::vector<char>> contributions;
    int arrived = 0;
  };
  struct World {
    int size = 0;
    std::vector<int64_t> members;
    std::vector<bool> gone;
    std::string broken;
    bool can_shrink = false;
    std::map<int64_t, Operation> operations;
  };

  bool Happens(int per_mille);
  // The world of some members of another one.
  std::shared_ptr<World> Shrink(const World& from,
                                const std::vector<int>& ranks,
                                int64_t generation);
  // Fails an operation that all had reached, for this member.
  bool LateBreak();

  std::mt19937& random_;
  std::map<int64_t, std::shared_ptr<World>> worlds_;
  std::set<int64_t> lost_;
};

}  // namespace elasticdl::worker::test
