// The algorithms. All cut their data into chunks and do one synchronisation per
// chunk (see ShmWorld for why that is enough).
#include "shm/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "core/sum.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// Per rank: more than the second-level cache, see SlotRing. Many ranks share
// kAllPartsBytes, so that worlds do not take too much memory.
constexpr size_t kPartBytes = 2 << 20;
constexpr size_t kAllPartsBytes = 32 << 20;
constexpr size_t kLeastPartBytes = 256 << 10;
// From here on it pays that each rank adds up only its piece and the others
// copy the result, which takes a second synchronisation. Between two ranks it
// never does.
constexpr size_t kPipelineBytes = 32 << 10;
// Pieces begin at cache lines, so that no two ranks write to one.
constexpr size_t kLine = 64;

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

size_t ShmCommunicator::PartBytes(int size) {
  const size_t share =
      kAllPartsBytes / static_cast<size_t>(size) / (4 * kLine) * (4 * kLine);
  return std::clamp(share, kLeastPartBytes, kPartBytes);
}

ShmCommunicator::ShmCommunicator(std::unique_ptr<ShmWorld> world,
                                 std::shared_ptr<DeathWatch> watch,
                                 std::vector<int> watched)
    : world_(std::move(world)),
      rank_(world_->rank()),
      size_(world_->size()),
      ring_(world_->segment().part_bytes() / 4),
      // 256 KiB with few ranks: a synchronisation is nothing beside it, and
      // the results of the chunk before fit into the quarter, too.
      chunk_bytes_(ring_.quarter_bytes() / 2),
      inputs_(static_cast<size_t>(size_)),
      watch_(std::move(watch)),
      watched_(std::move(watched)),
      following_(FollowDeaths(*watch_, *world_, watched_)) {}

ShmCommunicator::~ShmCommunicator() {
  watch_->Unfollow(following_);
  world_->Leave();
}

int64_t FollowDeaths(DeathWatch& watch, ShmWorld& world,
                     const std::vector<int>& watched) {
  return watch.Follow([&world, watched](const WatchedProcess& process) {
    const auto found = std::find(watched.begin(), watched.end(), process.rank);
    if (found == watched.end()) return;
    const int rank = static_cast<int>(found - watched.begin());
    world.MemberDied(rank, Blame(rank, absl::AbortedError(absl::StrCat(
                                           "rank ", rank, " (process ",
                                           process.process.pid, ") died"))));
  });
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmCommunicator::Shrink(
    const std::vector<int>& ranks, int64_t generation) {
  std::vector<int> watched;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no rank ", rank, " in a world of ", size_));
    }
    watched.push_back(watched_[static_cast<size_t>(rank)]);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end() || ranks.size() > watched_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank_, " is not in the smaller world"));
  }
  Abort("the world goes on without some of its members");
  ELASTICDL_ASSIGN_OR_RETURN(std::unique_ptr<ShmSegment> segment,
                             world_->segment().Next(generation));
  auto world = std::make_unique<ShmWorld>(std::move(segment),
                                          static_cast<int>(own - ranks.begin()),
                                          static_cast<int>(ranks.size()));
  return std::make_unique<ShmCommunicator>(std::move(world), watch_,
                                           std::move(watched));
}

// An empty array has one empty chunk.
size_t ShmCommunicator::NumChunks(size_t bytes) const {
  return std::max<size_t>(1, (bytes + chunk_bytes_ - 1) / chunk_bytes_);
}
size_t ShmCommunicator::ChunkBytes(size_t bytes, size_t chunk) const {
  return std::min(chunk_bytes_, bytes - chunk * chunk_bytes_);
}

absl::StatusOr<size_t> ShmCommunicator::Acquire(size_t bytes,
                                                Deadline& deadline) {
  const SlotRing::Place place = ring_.Take(bytes, world_->phase() + 1);
  if (place.must_wait) {
    ELASTICDL_RETURN_IF_ERROR(world_->Wait(0, size_, place.free_at, deadline));
  }
  return place.offset;
}

absl::StatusOr<size_t> ShmCommunicator::Put(const char* from, size_t bytes,
                                            uint32_t op, Deadline& deadline) {
  ELASTICDL_ASSIGN_OR_RETURN(const size_t offset, Acquire(bytes, deadline));
  Copy(At(rank_, offset), from, bytes);
  world_->Publish(op);
  return offset;
}

absl::Status ShmCommunicator::AllReduce(void* data, size_t count, DataType type,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  const Array array = {static_cast<char*>(data), count * SizeOf(type), type};
  const uint32_t op = OpWord(1, static_cast<uint32_t>(type), array.bytes);
  bool wrote = false;
  absl::Status status = world_->Check();
  if (status.ok()) {
    status = size_ <= 2 || array.bytes < kPipelineBytes
                 ? AllReduceDirect(array, op, deadline, wrote)
                 : AllReducePipelined(array, op, deadline, wrote);
  }
  return MarkData(!wrote, std::move(status));
}

void ShmCommunicator::SumAt(size_t offset, char* data, size_t bytes,
                            DataType type) {
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[rank] = rank == rank_ ? data : At(rank, offset);
  }
  Sum(inputs_.data(), size_, data, nullptr, bytes / SizeOf(type), type);
}

// Everybody adds up everything. The next chunk is put before the one before it
// is read, so that ranks need not run in step.
absl::Status ShmCommunicator::AllReduceDirect(const Array& array, uint32_t op,
                                              Deadline& deadline, bool& wrote) {
  const uint32_t first = world_->phase() + 1;
  const size_t chunks = NumChunks(array.bytes);
  size_t offsets[2];
  for (size_t i = 0; i <= chunks; ++i) {
    if (i < chunks) {
      ELASTICDL_ASSIGN_OR_RETURN(offsets[i % 2],
                                 Put(array.data + i * chunk_bytes_,
                                     ChunkBytes(array.bytes, i), op, deadline));
      ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    }
    if (i == 0) continue;
    const size_t ready = i - 1;
    ELASTICDL_RETURN_IF_ERROR(
        world_->WaitAllAt(static_cast<uint32_t>(first + ready), deadline));
    wrote = true;
    SumAt(offsets[ready % 2], array.data + ready * chunk_bytes_,
          ChunkBytes(array.bytes, ready), array.type);
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

// What the others add up.
void ShmCommunicator::WriteInput(const char* chunk, size_t chunk_bytes,
                                 size_t offset) {
  char* const to = At(rank_, offset);
  const Piece own = PieceOf(rank_, chunk_bytes);
  Copy(to, chunk, own.begin);
  Copy(to + own.end, chunk + own.end, chunk_bytes - own.end);
}

// Adds up the own piece of a chunk that all have put at `offset`; the result
// also goes to the others, at `result_offset`.
void ShmCommunicator::ReduceOwnPiece(char* chunk, size_t chunk_bytes,
                                     DataType type, size_t offset,
                                     size_t result_offset) {
  const Piece own = PieceOf(rank_, chunk_bytes);
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[rank] = (rank == rank_ ? chunk : At(rank, offset)) + own.begin;
  }
  Sum(inputs_.data(), size_, chunk + own.begin, At(rank_, result_offset),
      own.bytes() / SizeOf(type), type);
}

void ShmCommunicator::ReadResults(char* chunk, size_t chunk_bytes,
                                  size_t offset) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Piece piece = PieceOf(rank, chunk_bytes);
    Copy(chunk + piece.begin, At(rank, offset), piece.bytes());
  }
}

// Each rank adds up its piece of a chunk and hands it to the others. Phase i
// carries the inputs of chunk i and, before them, the results of chunk i - 1.
absl::Status ShmCommunicator::AllReducePipelined(const Array& array,
                                                 uint32_t op,
                                                 Deadline& deadline,
                                                 bool& wrote) {
  const size_t chunks = NumChunks(array.bytes);
  const size_t results = PieceOf(0, chunk_bytes_).bytes();
  ELASTICDL_ASSIGN_OR_RETURN(
      size_t place, Acquire(results + ChunkBytes(array.bytes, 0), deadline));
  for (size_t i = 0; i <= chunks; ++i) {
    char* const chunk = array.data + i * chunk_bytes_;
    const size_t bytes = i < chunks ? ChunkBytes(array.bytes, i) : 0;
    if (i < chunks) WriteInput(chunk, bytes, place + results);
    world_->Publish(op);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    size_t next = 0;
    if (i < chunks) {
      const size_t after = i + 1 < chunks ? ChunkBytes(array.bytes, i + 1) : 0;
      ELASTICDL_ASSIGN_OR_RETURN(next, Acquire(results + after, deadline));
      wrote = true;
      ReduceOwnPiece(chunk, bytes, array.type, place + results, next);
    }
    if (i > 0)
      ReadResults(chunk - chunk_bytes_, ChunkBytes(array.bytes, i - 1), place);
    place = next;
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Broadcast(void* data, size_t bytes, int root,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size_));
  }
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const uint32_t op = OpWord(2, static_cast<uint32_t>(root) % 8, bytes);
  const uint32_t first = world_->phase() + 1;
  size_t offset = 0;
  do {
    const size_t chunk = std::min(chunk_bytes_, bytes - offset);
    char* const at = static_cast<char*>(data) + offset;
    size_t place = 0;
    if (rank_ == root) {
      ELASTICDL_ASSIGN_OR_RETURN(place, Put(at, chunk, op, deadline));
    } else {
      place = ring_.Take(chunk, world_->phase() + 1).offset;
      world_->Publish(op);
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.broadcast"));
    if (rank_ != root) {
      const uint32_t phase = world_->phase();
      ELASTICDL_RETURN_IF_ERROR(world_->Wait(root, root + 1, phase, deadline));
      ELASTICDL_RETURN_IF_ERROR(world_->CheckSameOp(root, phase));
      Copy(at, At(root, place), chunk);
    }
    offset += chunk;
  } while (offset < bytes);
  return world_->Wait(0, size_, first, deadline);
}

absl::Status ShmCommunicator::AllGather(const void* in, void* out, size_t bytes,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const uint32_t op = OpWord(3, 0, bytes);
  char* const result = static_cast<char*>(out);
  size_t offset = 0;
  do {
    const size_t chunk = std::min(chunk_bytes_, bytes - offset);
    const char* const own = static_cast<const char*>(in) + offset;
    ELASTICDL_ASSIGN_OR_RETURN(const size_t place,
                               Put(own, chunk, op, deadline));
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_gather"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    for (int rank = 0; rank < size_; ++rank) {
      char* const to = result + static_cast<size_t>(rank) * bytes + offset;
      if (rank != rank_) {
        Copy(to, At(rank, place), chunk);
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
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  const size_t block = count * SizeOf(type);
  const uint32_t op = OpWord(4, static_cast<uint32_t>(type), block);
  char* const blocks = static_cast<char*>(data);
  // A slot holds a part of each block.
  const size_t part_limit =
      chunk_bytes_ / static_cast<size_t>(size_) / kLine * kLine;
  size_t offset = 0;
  do {
    const size_t part = std::min(part_limit, block - offset);
    ELASTICDL_ASSIGN_OR_RETURN(
        const size_t place,
        Acquire(part_limit * static_cast<size_t>(size_), deadline));
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      Copy(At(rank_, place) + rank * part_limit, blocks + rank * block + offset,
           part);
    }
    world_->Publish(op);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.reduce_scatter"));
    ELASTICDL_RETURN_IF_ERROR(world_->WaitAll(deadline));
    char* const own = blocks + rank_ * block + offset;
    for (int rank = 0; rank < size_; ++rank) {
      inputs_[rank] =
          rank == rank_ ? own : At(rank, place) + rank_ * part_limit;
    }
    Sum(inputs_.data(), size_, own, nullptr, part / SizeOf(type), type);
    offset += part;
  } while (offset < block);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Barrier(absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(world_->Check());
  world_->Publish(OpWord(5, 0, 0));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.barrier"));
  return world_->WaitAll(deadline);
}

}  // namespace elasticdl::collective
