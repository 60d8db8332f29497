// The algorithms. All cut their data into chunks that fit a slot and do one
// synchronisation per chunk (see ShmWorld for why that is enough).
#include "shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "sum.h"

namespace elasticdl::collective {
namespace {

// Large enough that a synchronisation (below 1 us between running ranks) is
// cheap beside it, small enough that slots stay in the second-level cache.
constexpr size_t kChunkBytes = 64 << 10;
// From here on it pays that each rank adds up only its part and the others copy
// the result, which takes a second synchronisation.
constexpr size_t kPipelineBytes = 32 << 10;
// Pieces begin at cache lines, so that no two ranks write to one.
constexpr size_t kLine = 64;

// The part of a slot for the results, after the inputs.
size_t ResultBytes(int size) {
  return (kChunkBytes / static_cast<size_t>(size) / kLine + 2) * kLine;
}

// What an operation looks like to the others: kind, type and size must match.
uint32_t OpWord(uint32_t kind, uint32_t detail, size_t bytes) {
  const uint64_t mixed =
      (static_cast<uint64_t>(bytes) * 64 + kind * 8 + detail) *
      0x9E3779B97F4A7C15u;
  return static_cast<uint32_t>(mixed >> 32);
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

size_t ShmCommunicator::SlotBytes(int size) {
  return kChunkBytes + ResultBytes(size);
}

ShmCommunicator::ShmCommunicator(std::unique_ptr<ShmWorld> world,
                                 std::unique_ptr<DeathWatch> watch)
    : world_(std::move(world)),
      rank_(world_->rank()),
      size_(world_->size()),
      inputs_(static_cast<size_t>(size_)),
      watch_(std::move(watch)) {}

ShmCommunicator::~ShmCommunicator() { world_->Leave(); }

absl::Status ShmCommunicator::Put(const char* from, size_t bytes, uint32_t op,
                                  const Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(world_->WaitWritable(deadline));
  Copy(Slot(rank_, world_->phase() + 1), from, bytes);
  world_->Publish(op);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::AllReduce(void* data, size_t count, DataType type,
                                        absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const Array array = {static_cast<char*>(data), count * SizeOf(type), type};
  const uint32_t op = OpWord(1, static_cast<uint32_t>(type), array.bytes);
  if (size_ == 2 || array.bytes < kPipelineBytes) {
    return AllReduceDirect(array, op, deadline);
  }
  return AllReducePipelined(array, op, deadline);
}

void ShmCommunicator::SumSlots(uint32_t phase, char* data, size_t bytes,
                               DataType type) {
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[rank] = rank == rank_ ? data : Slot(rank, phase);
  }
  Sum(inputs_.data(), size_, data, nullptr, bytes / SizeOf(type), type);
}

// Everybody adds up everything. The next chunk is put before the one before it
// is read, so that ranks need not run in step.
absl::Status ShmCommunicator::AllReduceDirect(const Array& array, uint32_t op,
                                              const Deadline& deadline) {
  const uint32_t first = world_->phase() + 1;
  const size_t chunks =
      std::max<size_t>(1, (array.bytes + kChunkBytes - 1) / kChunkBytes);
  const auto chunk_bytes = [&array](size_t chunk) {
    return std::min(kChunkBytes, array.bytes - chunk * kChunkBytes);
  };
  for (size_t chunk = 0; chunk <= chunks; ++chunk) {
    if (chunk < chunks) {
      ELASTICDL_RETURN_IF_ERROR(Put(array.data + chunk * kChunkBytes,
                                    chunk_bytes(chunk), op, deadline));
      ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    }
    if (chunk == 0) continue;
    const size_t ready = chunk - 1;
    const auto phase = static_cast<uint32_t>(first + ready);
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAllAt(phase, deadline));
    SumSlots(phase, array.data + ready * kChunkBytes, chunk_bytes(ready),
             array.type);
  }
  return absl::OkStatus();
}

// The part of a chunk that `rank` adds up.
ShmCommunicator::Piece ShmCommunicator::PieceOf(int rank,
                                                size_t chunk_bytes) const {
  const size_t lines = (chunk_bytes + kLine - 1) / kLine;
  const auto size = static_cast<size_t>(size_);
  const size_t piece = (lines + size - 1) / size * kLine;
  const size_t begin = std::min(chunk_bytes, piece * rank);
  return {begin, std::min(chunk_bytes, begin + piece)};
}

// Puts what the others add up into the slot of the next phase.
void ShmCommunicator::WriteInput(const char* chunk, size_t chunk_bytes) {
  char* const slot = Slot(rank_, world_->phase() + 1);
  const Piece own = PieceOf(rank_, chunk_bytes);
  Copy(slot, chunk, own.begin);
  Copy(slot + own.end, chunk + own.end, chunk_bytes - own.end);
}

// Adds up the own piece of the chunk in the slots of this phase; the result
// also goes to the others, in the slot of the next phase.
void ShmCommunicator::ReduceOwnPiece(char* chunk, size_t chunk_bytes,
                                     DataType type) {
  const Piece own = PieceOf(rank_, chunk_bytes);
  const uint32_t phase = world_->phase();
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[rank] = (rank == rank_ ? chunk : Slot(rank, phase)) + own.begin;
  }
  Sum(inputs_.data(), size_, chunk + own.begin,
      Slot(rank_, phase + 1) + kChunkBytes, own.bytes() / SizeOf(type), type);
}

// Takes the others' results from the slots of this phase.
void ShmCommunicator::ReadResults(char* chunk, size_t chunk_bytes) {
  const uint32_t phase = world_->phase();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Piece piece = PieceOf(rank, chunk_bytes);
    Copy(chunk + piece.begin, Slot(rank, phase) + kChunkBytes, piece.bytes());
  }
}

// Phase i carries the inputs of chunk i and the results of chunk i - 1.
absl::Status ShmCommunicator::AllReducePipelined(const Array& array,
                                                 uint32_t op,
                                                 const Deadline& deadline) {
  const size_t chunks = (array.bytes + kChunkBytes - 1) / kChunkBytes;
  const auto chunk_bytes = [&array](size_t chunk) {
    return std::min(kChunkBytes, array.bytes - chunk * kChunkBytes);
  };
  for (size_t i = 0; i <= chunks; ++i) {
    char* const chunk = array.data + i * kChunkBytes;
    ELASTICDL_RETURN_IF_ERROR(world_->WaitWritable(deadline));
    if (i < chunks) WriteInput(chunk, chunk_bytes(i));
    world_->Publish(op);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    if (i < chunks) ReduceOwnPiece(chunk, chunk_bytes(i), array.type);
    if (i > 0) ReadResults(chunk - kChunkBytes, chunk_bytes(i - 1));
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Broadcast(void* data, size_t bytes, int root,
                                        absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size_));
  }
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const uint32_t op = OpWord(2, static_cast<uint32_t>(root) % 8, bytes);
  const uint32_t first = world_->phase() + 1;
  size_t offset = 0;
  do {
    const size_t chunk = std::min(kChunkBytes, bytes - offset);
    char* const at = static_cast<char*>(data) + offset;
    if (rank_ == root) {
      ELASTICDL_RETURN_IF_ERROR(Put(at, chunk, op, deadline));
    } else {
      world_->Publish(op);
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.broadcast"));
    if (rank_ != root) {
      const uint32_t phase = world_->phase();
      ELASTICDL_RETURN_IF_ERROR(world_->Wait(root, root + 1, phase, deadline));
      ELASTICDL_RETURN_IF_ERROR(world_->CheckSameOp(root, phase));
      Copy(at, Slot(root, phase), chunk);
    }
    offset += chunk;
  } while (offset < bytes);
  return world_->Wait(0, size_, first, deadline);
}

absl::Status ShmCommunicator::AllGather(const void* in, void* out, size_t bytes,
                                        absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const uint32_t op = OpWord(3, 0, bytes);
  char* const result = static_cast<char*>(out);
  size_t offset = 0;
  do {
    const size_t chunk = std::min(kChunkBytes, bytes - offset);
    const char* const own = static_cast<const char*>(in) + offset;
    ELASTICDL_RETURN_IF_ERROR(Put(own, chunk, op, deadline));
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_gather"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    for (int rank = 0; rank < size_; ++rank) {
      char* const to = result + static_cast<size_t>(rank) * bytes + offset;
      if (rank != rank_) {
        Copy(to, Slot(rank, world_->phase()), chunk);
      } else if (to != own) {
        Copy(to, own, chunk);
      }
    }
    offset += chunk;
  } while (offset < bytes);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::ReduceScatter(void* data, size_t count,
                                            DataType type,
                                            absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const size_t block = count * SizeOf(type);
  const uint32_t op = OpWord(4, static_cast<uint32_t>(type), block);
  char* const blocks = static_cast<char*>(data);
  // A slot holds a part of each block.
  const size_t part_limit =
      kChunkBytes / static_cast<size_t>(size_) / kLine * kLine;
  size_t offset = 0;
  do {
    const size_t part = std::min(part_limit, block - offset);
    ELASTICDL_RETURN_IF_ERROR(world_->WaitWritable(deadline));
    char* const slot = Slot(rank_, world_->phase() + 1);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      Copy(slot + rank * part_limit, blocks + rank * block + offset, part);
    }
    world_->Publish(op);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.reduce_scatter"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    char* const own = blocks + rank_ * block + offset;
    for (int rank = 0; rank < size_; ++rank) {
      inputs_[rank] = rank == rank_
                          ? own
                          : Slot(rank, world_->phase()) + rank_ * part_limit;
    }
    Sum(inputs_.data(), size_, own, nullptr, part / SizeOf(type), type);
    offset += part;
  } while (offset < block);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Barrier(absl::Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  world_->Publish(OpWord(5, 0, 0));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.barrier"));
  return world_->WaitAll(deadline);
}

}  // namespace elasticdl::collective
