#include "tcp/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/sum.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// The most that a rank sends directly to all others: about what a gigabit link
// carries in the time of a ring's latencies.
constexpr size_t kSmallBytes = 64 << 10;
// Received data is added up in chunks that stay in the cache.
constexpr size_t kChunkBytes = 128 << 10;
// Blocks begin at cache lines; also a multiple of every element.
constexpr size_t kLine = 64;

}  // namespace

TcpCommunicator::TcpCommunicator(std::unique_ptr<TcpMesh> mesh)
    : mesh_(std::move(mesh)),
      rank_(mesh_->rank()),
      size_(mesh_->size()),
      scratch_(std::max(kChunkBytes, kSmallBytes + kLine)) {}

bool TcpCommunicator::IsSmall(size_t bytes) const {
  return bytes * static_cast<size_t>(size_ - 1) <= kSmallBytes;
}

TcpCommunicator::Blocks TcpCommunicator::Split(char* data, size_t bytes) const {
  const auto size = static_cast<size_t>(size_);
  const size_t lines = (bytes + kLine - 1) / kLine;
  const size_t block = (lines + size - 1) / size * kLine;
  Blocks blocks;
  for (size_t rank = 0; rank < size; ++rank) {
    const size_t begin = std::min(bytes, rank * block);
    blocks.push_back({data + begin, std::min(bytes, begin + block) - begin});
  }
  return blocks;
}

// `all` has `bytes` of each rank; this rank's are not changed.
absl::Status TcpCommunicator::ExchangeWithAll(const char* own, char* all,
                                              size_t bytes,
                                              Deadline& deadline) {
  std::vector<TcpSend> sends;
  std::vector<TcpReceive> receives;
  for (int distance = 1; distance < size_; ++distance) {
    const int to = Neighbour(distance);
    const int from = Neighbour(-distance);
    sends.push_back({to, own, bytes});
    receives.push_back({from, all + static_cast<size_t>(from) * bytes, bytes});
  }
  return mesh_->Move(std::move(sends), std::move(receives), deadline);
}

absl::Status TcpCommunicator::AllReduceSmall(char* data, size_t bytes,
                                             DataType type,
                                             Deadline& deadline) {
  const size_t needed = bytes * static_cast<size_t>(size_);
  if (scratch_.size() < needed) scratch_.resize(needed);
  ELASTICDL_RETURN_IF_ERROR(
      ExchangeWithAll(data, scratch_.data(), bytes, deadline));
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    inputs.push_back(rank == rank_
                         ? data
                         : scratch_.data() + static_cast<size_t>(rank) * bytes);
  }
  Sum(inputs.data(), size_, data, nullptr, bytes / SizeOf(type), type);
  return absl::OkStatus();
}

absl::Status TcpCommunicator::AllReduce(void* data, size_t count, DataType type,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(mesh_->Check());
  char* const bytes = static_cast<char*>(data);
  const size_t num_bytes = count * SizeOf(type);
  if (num_bytes == 0) return Synchronise("collective.all_reduce", deadline);
  if (IsSmall(num_bytes)) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    return AllReduceSmall(bytes, num_bytes, type, deadline);
  }
  const Blocks blocks = Split(bytes, num_bytes);
  ELASTICDL_RETURN_IF_ERROR(
      RingReduceScatter(blocks, type, "collective.all_reduce", deadline));
  return RingAllGather(blocks, "collective.all_reduce", deadline);
}

// In step s a rank passes on its sum of block rank - s - 1, so that after
// size - 1 steps the sum of its own block comes in last.
absl::Status TcpCommunicator::RingReduceScatter(const Blocks& blocks,
                                                DataType type,
                                                const char* failpoint,
                                                Deadline& deadline) {
  for (int step = 0; step < size_ - 1; ++step) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
    const Block& out = blocks[Neighbour(-step - 1)];
    const Block& in = blocks[Neighbour(-step - 2)];
    const auto add = [&](size_t offset, size_t bytes) {
      char* const own = in.data + offset;
      const void* const inputs[] = {scratch_.data(), own};
      Sum(inputs, 2, own, nullptr, bytes / SizeOf(type), type);
    };
    ELASTICDL_RETURN_IF_ERROR(mesh_->MoveInChunks(
        {Neighbour(1), out.data, out.bytes},
        {Neighbour(-1), in.bytes, scratch_.data(), kChunkBytes, add},
        deadline));
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::RingAllGather(const Blocks& blocks,
                                            const char* failpoint,
                                            Deadline& deadline) {
  for (int step = 0; step < size_ - 1; ++step) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
    const Block& out = blocks[Neighbour(-step)];
    const Block& in = blocks[Neighbour(-step - 1)];
    ELASTICDL_RETURN_IF_ERROR(mesh_->Move({{Neighbour(1), out.data, out.bytes}},
                                          {{Neighbour(-1), in.data, in.bytes}},
                                          deadline));
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::Broadcast(void* data, size_t bytes, int root,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size_));
  }
  ELASTICDL_RETURN_IF_ERROR(mesh_->Check());
  ELASTICDL_RETURN_IF_ERROR(Synchronise("collective.broadcast", deadline));
  char* const at = static_cast<char*>(data);
  if (!IsSmall(bytes)) return BroadcastAlongRing(at, bytes, root, deadline);
  if (rank_ != root) return mesh_->Move({}, {{root, at, bytes}}, deadline);
  std::vector<TcpSend> sends;
  for (int distance = 1; distance < size_; ++distance) {
    sends.push_back({Neighbour(distance), at, bytes});
  }
  return mesh_->Move(std::move(sends), {}, deadline);
}

// Each rank passes on what it got last while it gets the next chunk.
absl::Status TcpCommunicator::BroadcastAlongRing(char* data, size_t bytes,
                                                 int root, Deadline& deadline) {
  const int place = (rank_ - root + size_) % size_;
  const size_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  for (size_t step = 0; step <= chunks; ++step) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.broadcast"));
    std::vector<TcpSend> sends;
    std::vector<TcpReceive> receives;
    const auto size_of = [&](size_t chunk) {
      return std::min(kChunkBytes, bytes - chunk * kChunkBytes);
    };
    if (step < chunks && place > 0) {
      receives.push_back(
          {Neighbour(-1), data + step * kChunkBytes, size_of(step)});
    }
    if (step > 0 && place < size_ - 1) {
      const size_t before = step - 1;
      sends.push_back(
          {Neighbour(1), data + before * kChunkBytes, size_of(before)});
    }
    ELASTICDL_RETURN_IF_ERROR(
        mesh_->Move(std::move(sends), std::move(receives), deadline));
  }
  return absl::OkStatus();
}

absl::Status TcpCommunicator::AllGather(const void* in, void* out, size_t bytes,
                                        absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(mesh_->Check());
  if (bytes == 0) return Synchronise("collective.all_gather", deadline);
  char* const all = static_cast<char*>(out);
  char* const own = all + static_cast<size_t>(rank_) * bytes;
  if (own != in) std::memcpy(own, in, bytes);
  if (IsSmall(bytes)) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_gather"));
    return ExchangeWithAll(own, all, bytes, deadline);
  }
  Blocks blocks;
  for (int rank = 0; rank < size_; ++rank) {
    blocks.push_back({all + static_cast<size_t>(rank) * bytes, bytes});
  }
  return RingAllGather(blocks, "collective.all_gather", deadline);
}

absl::Status TcpCommunicator::ReduceScatter(void* data, size_t count,
                                            DataType type,
                                            absl::Duration timeout) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(mesh_->Check());
  if (count == 0) return Synchronise("collective.reduce_scatter", deadline);
  const size_t bytes = count * SizeOf(type);
  Blocks blocks;
  for (int rank = 0; rank < size_; ++rank) {
    blocks.push_back(
        {static_cast<char*>(data) + static_cast<size_t>(rank) * bytes, bytes});
  }
  return RingReduceScatter(blocks, type, "collective.reduce_scatter", deadline);
}

absl::Status TcpCommunicator::Barrier(absl::Duration timeout) {
  Deadline deadline(timeout);
  return Synchronise("collective.barrier", deadline);
}

// After the step with distance d a rank has heard, directly or not, of the
// 2d - 1 ranks before it.
absl::Status TcpCommunicator::Synchronise(const char* failpoint,
                                          Deadline& deadline) {
  for (int distance = 1; distance < size_; distance *= 2) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
    const char token = 's';
    char got = 0;
    ELASTICDL_RETURN_IF_ERROR(mesh_->Move({{Neighbour(distance), &token, 1}},
                                          {{Neighbour(-distance), &got, 1}},
                                          deadline));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::collective
