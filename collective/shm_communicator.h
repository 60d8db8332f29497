// Collectives through shared memory, among members on one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "deadline.h"
#include "death_watch.h"
#include "elasticdl/collective/communicator.h"
#include "shm_world.h"

namespace elasticdl::collective {

// Every call returns only after all members have entered it; so who completes
// one knows that all had completed the one before.
class ShmCommunicator final : public Communicator {
 public:
  // What a slot must hold; all members compute the same from `size`.
  static size_t SlotBytes(int size);

  ShmCommunicator(std::unique_ptr<ShmWorld> world,
                  std::unique_ptr<DeathWatch> watch);
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
  void Abort(const std::string& reason) override { world_->Abort(reason); }

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

  absl::Status AllReduceDirect(const Array& array, uint32_t op,
                               const Deadline& deadline);
  absl::Status AllReducePipelined(const Array& array, uint32_t op,
                                  const Deadline& deadline);
  Piece PieceOf(int rank, size_t chunk_bytes) const;
  void WriteInput(const char* chunk, size_t chunk_bytes);
  void ReduceOwnPiece(char* chunk, size_t chunk_bytes, DataType type);
  void ReadResults(char* chunk, size_t chunk_bytes);
  // Writes all of `bytes` into this rank's next slot and publishes it.
  absl::Status Put(const char* from, size_t bytes, uint32_t op,
                   const Deadline& deadline);
  void SumSlots(uint32_t phase, char* data, size_t bytes, DataType type);
  char* Slot(int rank, uint32_t phase) {
    return world_->segment().slot(rank, phase);
  }

  const std::unique_ptr<ShmWorld> world_;
  const int rank_;
  const int size_;
  // Scratch of SumSlots and ReduceOwnPiece: the arrays to add.
  std::vector<const void*> inputs_;
  // Last, so that it stops first.
  const std::unique_ptr<DeathWatch> watch_;
};

}  // namespace elasticdl::collective
