// Collectives over a Mesh: members send messages to each other.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/deadline.h"
#include "core/mesh.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// In a full mesh, small data is sent directly from every member to every other;
// in a larger world along trees and by recursive doubling, for which the peers
// of topology.h are enough. Large data goes around a ring. Every call returns
// only after all members have entered it.
class MeshCommunicator final : public Communicator {
 public:
  // Not `full`: only peers can be sent to. `one_host`: all members are on one
  // host, where bytes move fastest between caches.
  explicit MeshCommunicator(std::unique_ptr<Mesh> mesh, bool full = true,
                            bool one_host = false);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration timeout) override;
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration timeout) override;
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration timeout) override;
  absl::Status ReduceScatter(void* data, size_t count, DataType type,
                             absl::Duration timeout) override;
  absl::Status Barrier(absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    mesh_->Abort(absl::AbortedError(reason));
  }

 private:
  // A part of an array that is passed on as one.
  struct Block {
    char* data;
    size_t bytes;
  };
  // One block per rank.
  using Blocks = std::vector<Block>;

  // One call of the Communicator interface.
  template <typename Body>
  absl::Status Call(absl::Duration timeout, const Body& body);
  bool IsSmall(size_t bytes) const;
  // The rank at this distance in the ring.
  int Neighbour(int distance) const {
    return (rank_ + distance % size_ + size_) % size_;
  }
  Blocks Split(char* data, size_t bytes) const;
  Blocks EqualBlocks(char* data, size_t bytes) const;
  absl::Status ExchangeWithAll(const char* own, char* all, size_t bytes,
                               Deadline& deadline);
  absl::Status AllReduceSmall(char* data, size_t bytes, DataType type,
                              Deadline& deadline);
  bool IsFasterDoubled(size_t bytes) const;
  absl::Status AllReduceDoubling(char* data, size_t bytes, DataType type,
                                 Deadline& deadline);
  absl::Status BroadcastAlongTree(char* data, size_t bytes, int root,
                                  Deadline& deadline);
  // `all` as for ExchangeWithAll.
  absl::Status GatherDoubling(const char* own, char* all, size_t bytes,
                              Deadline& deadline);
  absl::Status AllReduceLarge(char* data, size_t bytes, DataType type,
                              Deadline& deadline);
  // The same without a pause between steps.
  absl::Status AllReduceFlow(char* data, size_t bytes, DataType type,
                             Deadline& deadline);
  void AddToFlow(const Blocks& blocks, MeshFlow& flow) const;
  // Leaves the sum of block r at rank r.
  absl::Status RingReduceScatter(const Blocks& blocks, DataType type,
                                 const char* failpoint, Deadline& deadline);
  // Brings block r from rank r to all.
  absl::Status RingAllGather(const Blocks& blocks, const char* failpoint,
                             Deadline& deadline);
  absl::Status BroadcastSmall(char* data, size_t bytes, int root,
                              Deadline& deadline);
  absl::Status BroadcastAlongRing(char* data, size_t bytes, int root,
                                  Deadline& deadline);
  absl::Status Synchronise(const char* failpoint, Deadline& deadline);

  const std::unique_ptr<Mesh> mesh_;
  const int rank_;
  const int size_;
  const bool full_;
  const bool one_host_;
  // The largest power of two that is not above size_.
  int doubled_ = 1;
  std::vector<char> scratch_;
};

}  // namespace elasticdl::collective
