// A model whose values tell exactly which pushes are in them, in whatever order
// they came, and a server without sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/v1/ps.pb.h"
#include "model.h"
#include "server_state.h"

namespace elasticdl::ps {

// Whole numbers and a rate of 1: sums are exact, whatever their order.
v1::PsDefinition ExactDefinition();
// Always the same for the same number.
Gradient ExactGradient(const v1::PsDefinition& definition, int64_t number);

// A server and its log.
struct TestServer {
  explicit TestServer(int number) : id(number), state(Fresh()) {}
  std::unique_ptr<ServerState> Fresh() const {
    return std::make_unique<ServerState>(ServerState::Options{id, 0});
  }
  absl::Status Accept(const v1::PsEntry& entry, const std::string& payload);
  // Dies and comes back.
  void Restart();

  const int id;
  std::unique_ptr<ServerState> state;
  std::vector<EntryBytes> log;
};

// A model without any push, on the servers of the map.
void Begin(const v1::PsDefinition& definition, const BucketMap& map,
           std::vector<TestServer>& servers);

// Of the pushes 0 .. count-1, the server has each once in each of its buckets.
void ExpectExact(const v1::PsDefinition& definition, const BucketMap& map,
                 int64_t count, const TestServer& server);

}  // namespace elasticdl::ps
