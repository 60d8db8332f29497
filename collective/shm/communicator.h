// Collectives through shared memory, among members on one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "shm/death_watch.h"
#include "shm/slot_ring.h"
#include "shm/world.h"

namespace elasticdl::collective {

// The deaths that `watch` sees end the world. The result is for Unfollow.
int64_t FollowDeaths(DeathWatch& watch, ShmWorld& world,
                     const std::vector<int>& watched);

// Every call returns only after all members have entered it. So when one call
// has completed, all members have completed the previous one.
class ShmCommunicator final : public Communicator {
 public:
  // Per member; all members compute the same value.
  static size_t PartBytes(int size);

  // `watched`: the number of each rank's process in `watch`.
  ShmCommunicator(std::unique_ptr<ShmWorld> world,
                  std::shared_ptr<DeathWatch> watch, std::vector<int> watched);
  ~ShmCommunicator() override;

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
    world_->Abort(absl::AbortedError(reason));
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Shrink(
      const std::vector<int>& ranks, int64_t generation) override;
  bool can_shrink() const override { return world_->segment().HasNext(); }
  // For code that must act when the world ends (see ShmWorld).
  ShmWorld& world() { return *world_; }

 private:
  // One array to reduce, in bytes of elements of `type`.
  struct Array {
    char* data;
    size_t bytes;
    DataType type;
  };
  // Bytes [begin, end) of a chunk.
  struct Piece {
    size_t begin;
    size_t end;
    size_t bytes() const { return end - begin; }
  };

  // `wrote`: set before the array is changed.
  absl::Status AllReduceDirect(const Array& array, uint32_t op,
                               Deadline& deadline, bool& wrote);
  absl::Status AllReducePipelined(const Array& array, uint32_t op,
                                  Deadline& deadline, bool& wrote);
  size_t NumChunks(size_t bytes) const;
  size_t ChunkBytes(size_t bytes, size_t chunk) const;
  Piece PieceOf(int rank, size_t chunk_bytes) const;
  void WriteInput(const char* chunk, size_t chunk_bytes, size_t offset);
  void ReduceOwnPiece(char* chunk, size_t chunk_bytes, DataType type,
                      size_t offset, size_t result_offset);
  void ReadResults(char* chunk, size_t chunk_bytes, size_t offset);
  // Waits until there is room for `bytes` of the next phase and returns its
  // offset in each rank's part.
  absl::StatusOr<size_t> Acquire(size_t bytes, Deadline& deadline);
  // Writes `bytes` for the next phase, publishes it and returns their offset.
  absl::StatusOr<size_t> Put(const char* from, size_t bytes, uint32_t op,
                             Deadline& deadline);
  // data = sum of `bytes` at `offset` over all ranks, own data from `data`.
  void SumAt(size_t offset, char* data, size_t bytes, DataType type);
  char* At(int rank, size_t offset) {
    return world_->segment().part(rank) + offset;
  }

  const std::unique_ptr<ShmWorld> world_;
  const int rank_;
  const int size_;
  SlotRing ring_;
  const size_t chunk_bytes_;
  // Used by SumAt and ReduceOwnPiece: the arrays to add.
  std::vector<const void*> inputs_;
  // Shared with the worlds that this one has shrunk to: it may go on when this
  // one ends, which no longer follows it then.
  const std::shared_ptr<DeathWatch> watch_;
  const std::vector<int> watched_;
  const int64_t following_;
};

}  // namespace elasticdl::collective
