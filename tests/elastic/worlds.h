// Worlds of threads for tests: real communicators within one process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elasticdl/collective/communicator.h"

namespace elasticdl::elastic {

// One communicator per rank, connected by shared memory.
inline std::vector<std::unique_ptr<collective::Communicator>> MakeWorld(
    int size) {
  std::vector<std::unique_ptr<collective::Connector>> connectors;
  std::vector<std::string> offers;
  for (int rank = 0; rank < size; ++rank) {
    collective::WorldSpec spec;
    spec.generation = 1;
    spec.rank = rank;
    spec.hosts.assign(static_cast<size_t>(size), collective::LocalHost());
    spec.secret = "secret";
    auto connector = collective::BeginConnect(spec, {});
    EXPECT_TRUE(connector.ok()) << connector.status();
    offers.push_back((*connector)->offer());
    connectors.push_back(*std::move(connector));
  }
  std::vector<std::unique_ptr<collective::Communicator>> world(
      static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto made = connectors[rank]->Connect(offers, absl::Seconds(30));
      EXPECT_TRUE(made.ok()) << made.status();
      if (made.ok()) world[rank] = *std::move(made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return world;
}

}  // namespace elasticdl::elastic
