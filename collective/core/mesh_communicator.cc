#include "core/mesh_communicator.h"

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
// What a link carries in the time that a small message takes: 25 µs at 10
// Gbit/s. (At 1 ms between hosts a ring is slower still, on one host both are
// level; allreduce_hosts measures it.)
constexpr size_t kLatencyBytes = 32 << 10;
// More than this is not copied to be gathered in few messages.
constexpr size_t kMaxGatherBytes = 4 << 20;
// A broadcast passes through the ring in chunks of this size.
constexpr size_t kChunkBytes = 128 << 10;
// On one host, what is summed is passed on while it is in the cache.
constexpr size_t kPieceBytes = 128 << 10;
// Blocks begin at cache lines; also a multiple of every element.
constexpr size_t kLine = 64;

}  // namespace

absl::Status Mesh::RunFlow(const MeshFlow&, Deadline&) {
  return absl::UnimplementedError("this mesh has no flow");
}

MeshCommunicator::MeshCommunicator(std::unique_ptr<Mesh> mesh, bool full,
                                   bool one_host)
    : mesh_(std::move(mesh)),
      rank_(mesh_->rank()),
      size_(mesh_->size()),
      full_(full),
      one_host_(one_host),
      scratch_(kSmallBytes + kLine) {
  while (doubled_ * 2 <= size_) doubled_ *= 2;
}

bool MeshCommunicator::IsSmall(size_t bytes) const {
  return bytes * static_cast<size_t>(size_ - 1) <= kSmallBytes;
}

MeshCommunicator::Blocks MeshCommunicator::Split(char* data,
                                                 size_t bytes) const {
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
absl::Status MeshCommunicator::ExchangeWithAll(const char* own, char* all,
                                               size_t bytes,
                                               Deadline& deadline) {
  std::vector<MeshSend> sends;
  std::vector<MeshReceive> receives;
  for (int distance = 1; distance < size_; ++distance) {
    const int to = Neighbour(distance);
    const int from = Neighbour(-distance);
    sends.push_back({to, own, bytes});
    receives.push_back({from, all + static_cast<size_t>(from) * bytes, bytes});
  }
  return mesh_->Move(std::move(sends), std::move(receives), deadline);
}

absl::Status MeshCommunicator::AllReduceSmall(char* data, size_t bytes,
                                              DataType type,
                                              Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
  const size_t needed = bytes * static_cast<size_t>(size_);
  if (scratch_.size() < needed) scratch_.resize(needed);
  const absl::Status exchanged =
      ExchangeWithAll(data, scratch_.data(), bytes, deadline);
  if (!exchanged.ok()) return MarkData(/*left_alone=*/true, exchanged);
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

// Doubling sends all data in few steps, a ring little data in many. Between two
// it would send the same and sum all of it twice.
bool MeshCommunicator::IsFasterDoubled(size_t bytes) const {
  if (size_ <= 2) return false;
  size_t steps = size_ > doubled_ ? 2 : 0;
  for (int distance = 1; distance < doubled_; distance *= 2) ++steps;
  const size_t ring_steps = 2 * static_cast<size_t>(size_ - 1);
  const size_t ring_bytes = ring_steps * (bytes / static_cast<size_t>(size_));
  return steps * (bytes + kLatencyBytes) <=
         ring_bytes + ring_steps * kLatencyBytes;
}

// Pairs at a distance of 1, 2, 4, … exchange their sums. Both add the lower
// rank's first, so all have the same bits. Ranks beyond the power of two give
// theirs to a partner and get the result from it.
absl::Status MeshCommunicator::AllReduceDoubling(char* data, size_t bytes,
                                                 DataType type,
                                                 Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  char* const other = scratch_.data();
  const auto add = [&](bool own_first) {
    const void* const inputs[] = {own_first ? data : other,
                                  own_first ? other : data};
    Sum(inputs, 2, data, nullptr, bytes / SizeOf(type), type);
  };
  if (rank_ >= doubled_) {
    const int partner = rank_ - doubled_;
    ELASTICDL_RETURN_IF_ERROR(
        mesh_->Move({{partner, data, bytes}}, {}, deadline));
    return mesh_->Move({}, {{partner, data, bytes}}, deadline);
  }
  const int beyond = rank_ + doubled_;
  if (beyond < size_) {
    ELASTICDL_RETURN_IF_ERROR(
        mesh_->Move({}, {{beyond, other, bytes}}, deadline));
    add(/*own_first=*/true);
  }
  for (int distance = 1; distance < doubled_; distance *= 2) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    const int partner = rank_ ^ distance;
    ELASTICDL_RETURN_IF_ERROR(mesh_->Move({{partner, data, bytes}},
                                          {{partner, other, bytes}}, deadline));
    add(/*own_first=*/rank_ < partner);
  }
  if (beyond >= size_) return absl::OkStatus();
  return mesh_->Move({{beyond, data, bytes}}, {}, deadline);
}

template <typename Body>
absl::Status MeshCommunicator::Call(absl::Duration timeout, const Body& body) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(mesh_->Enter(deadline));
  ELASTICDL_RETURN_IF_ERROR(body(deadline));
  mesh_->Complete();
  return absl::OkStatus();
}

absl::Status MeshCommunicator::AllReduce(void* data, size_t count,
                                         DataType type,
                                         absl::Duration timeout) {
  bool entered = false;
  absl::Status status = Call(timeout, [&](Deadline& deadline) {
    entered = true;
    char* const bytes = static_cast<char*>(data);
    const size_t num_bytes = count * SizeOf(type);
    if (num_bytes == 0) return Synchronise("collective.all_reduce", deadline);
    if (full_ && IsSmall(num_bytes)) {
      return AllReduceSmall(bytes, num_bytes, type, deadline);
    }
    return IsFasterDoubled(num_bytes)
               ? AllReduceDoubling(bytes, num_bytes, type, deadline)
               : AllReduceLarge(bytes, num_bytes, type, deadline);
  });
  return entered ? status : MarkData(/*left_alone=*/true, std::move(status));
}

absl::Status MeshCommunicator::AllReduceLarge(char* data, size_t bytes,
                                              DataType type,
                                              Deadline& deadline) {
  if (mesh_->HasFlow()) return AllReduceFlow(data, bytes, type, deadline);
  const Blocks blocks = Split(data, bytes);
  ELASTICDL_RETURN_IF_ERROR(
      RingReduceScatter(blocks, type, "collective.all_reduce", deadline));
  return RingAllGather(blocks, "collective.all_reduce", deadline);
}

absl::Status MeshCommunicator::AllReduceFlow(char* data, size_t bytes,
                                             DataType type,
                                             Deadline& deadline) {
  MeshFlow flow;
  flow.to = Neighbour(1);
  flow.from = Neighbour(-1);
  flow.failpoint = "collective.all_reduce";
  flow.sum = [type](const char* chunk, char* own, size_t count) {
    const void* const inputs[] = {chunk, own};
    Sum(inputs, 2, own, nullptr, count / SizeOf(type), type);
  };
  // Between hosts a pause for each segment would cost a latency.
  const size_t segment =
      one_host_ ? kPieceBytes * static_cast<size_t>(size_) : bytes;
  for (size_t begin = 0; begin < bytes; begin += segment) {
    AddToFlow(Split(data + begin, std::min(segment, bytes - begin)), flow);
  }
  return mesh_->RunFlow(flow, deadline);
}

// The blocks and their order are those of RingReduceScatter, then of
// RingAllGather; what a rank sends in a step is what came in in the one before.
void MeshCommunicator::AddToFlow(const Blocks& blocks, MeshFlow& flow) const {
  int before = -1;
  for (int step = 0; step < 2 * (size_ - 1); ++step) {
    const bool reduces = step < size_ - 1;
    const int distance = reduces ? step + 1 : step - (size_ - 1);
    const Block& out = blocks[Neighbour(-distance)];
    const Block& in = blocks[Neighbour(-distance - 1)];
    if (out.bytes > 0) flow.out.push_back({out.data, out.bytes, before});
    before = -1;
    if (in.bytes > 0) {
      before = static_cast<int>(flow.in.size());
      flow.in.push_back({in.data, in.bytes, reduces});
    }
  }
}

// In step s a rank passes on its sum of block rank - s - 1, so that after
// size - 1 steps the sum of its own block comes in last.
absl::Status MeshCommunicator::RingReduceScatter(const Blocks& blocks,
                                                 DataType type,
                                                 const char* failpoint,
                                                 Deadline& deadline) {
  for (int step = 0; step < size_ - 1; ++step) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
    const Block& out = blocks[Neighbour(-step - 1)];
    const Block& in = blocks[Neighbour(-step - 2)];
    const auto add = [&](const char* chunk, size_t offset, size_t bytes) {
      char* const own = in.data + offset;
      const void* const inputs[] = {chunk, own};
      Sum(inputs, 2, own, nullptr, bytes / SizeOf(type), type);
    };
    ELASTICDL_RETURN_IF_ERROR(
        mesh_->MoveInChunks({Neighbour(1), out.data, out.bytes},
                            {Neighbour(-1), in.bytes, add}, deadline));
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::RingAllGather(const Blocks& blocks,
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

absl::Status MeshCommunicator::Broadcast(void* data, size_t bytes, int root,
                                         absl::Duration timeout) {
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size_));
  }
  return Call(timeout, [&](Deadline& deadline) -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(Synchronise("collective.broadcast", deadline));
    char* const at = static_cast<char*>(data);
    if (!full_ && bytes <= kSmallBytes) {
      return BroadcastAlongTree(at, bytes, root, deadline);
    }
    return full_ && IsSmall(bytes)
               ? BroadcastSmall(at, bytes, root, deadline)
               : BroadcastAlongRing(at, bytes, root, deadline);
  });
}

absl::Status MeshCommunicator::BroadcastSmall(char* data, size_t bytes,
                                              int root, Deadline& deadline) {
  if (rank_ != root) return mesh_->Move({}, {{root, data, bytes}}, deadline);
  std::vector<MeshSend> sends;
  for (int distance = 1; distance < size_; ++distance) {
    sends.push_back({Neighbour(distance), data, bytes});
  }
  return mesh_->Move(std::move(sends), {}, deadline);
}

// The rank at place p from the root gets the data from that at p without its
// lowest bit, and passes it on to those that differ from it by a lower bit.
absl::Status MeshCommunicator::BroadcastAlongTree(char* data, size_t bytes,
                                                  int root,
                                                  Deadline& deadline) {
  const int place = (rank_ - root + size_) % size_;
  int bit = 1;
  while (bit < size_ && (place & bit) == 0) bit *= 2;
  if (place != 0) {
    ELASTICDL_RETURN_IF_ERROR(
        mesh_->Move({}, {{Neighbour(-bit), data, bytes}}, deadline));
  }
  std::vector<MeshSend> sends;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (place + bit < size_) sends.push_back({Neighbour(bit), data, bytes});
  }
  return mesh_->Move(std::move(sends), {}, deadline);
}

// After the step with distance d a rank has the data of itself and of the
// 2d - 1 ranks after it.
absl::Status MeshCommunicator::GatherDoubling(const char* own, char* all,
                                              size_t bytes,
                                              Deadline& deadline) {
  const auto size = static_cast<size_t>(size_);
  if (scratch_.size() < size * bytes) scratch_.resize(size * bytes);
  std::memcpy(scratch_.data(), own, bytes);
  for (int distance = 1; distance < size_; distance *= 2) {
    const auto have = static_cast<size_t>(distance);
    const size_t moved = std::min(have, size - have) * bytes;
    ELASTICDL_RETURN_IF_ERROR(mesh_->Move(
        {{Neighbour(-distance), scratch_.data(), moved}},
        {{Neighbour(distance), scratch_.data() + have * bytes, moved}},
        deadline));
  }
  for (size_t i = 1; i < size; ++i) {
    const auto from = static_cast<size_t>(Neighbour(static_cast<int>(i)));
    std::memcpy(all + from * bytes, scratch_.data() + i * bytes, bytes);
  }
  return absl::OkStatus();
}

// Each rank passes on what it got last while it gets the next chunk.
absl::Status MeshCommunicator::BroadcastAlongRing(char* data, size_t bytes,
                                                  int root,
                                                  Deadline& deadline) {
  const int place = (rank_ - root + size_) % size_;
  const size_t chunks = (bytes + kChunkBytes - 1) / kChunkBytes;
  for (size_t step = 0; step <= chunks; ++step) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.broadcast"));
    std::vector<MeshSend> sends;
    std::vector<MeshReceive> receives;
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

MeshCommunicator::Blocks MeshCommunicator::EqualBlocks(char* data,
                                                       size_t bytes) const {
  Blocks blocks;
  for (int rank = 0; rank < size_; ++rank) {
    blocks.push_back({data + static_cast<size_t>(rank) * bytes, bytes});
  }
  return blocks;
}

absl::Status MeshCommunicator::AllGather(const void* in, void* out,
                                         size_t bytes, absl::Duration timeout) {
  constexpr char kFailpoint[] = "collective.all_gather";
  return Call(timeout, [&](Deadline& deadline) {
    if (bytes == 0) return Synchronise(kFailpoint, deadline);
    char* const all = static_cast<char*>(out);
    char* const own = all + static_cast<size_t>(rank_) * bytes;
    if (own != in) std::memcpy(own, in, bytes);
    const bool few =
        full_ ? IsSmall(bytes)
              : bytes * static_cast<size_t>(size_) <= kMaxGatherBytes;
    if (!few) {
      return RingAllGather(EqualBlocks(all, bytes), kFailpoint, deadline);
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint(kFailpoint));
    return full_ ? ExchangeWithAll(own, all, bytes, deadline)
                 : GatherDoubling(own, all, bytes, deadline);
  });
}

absl::Status MeshCommunicator::ReduceScatter(void* data, size_t count,
                                             DataType type,
                                             absl::Duration timeout) {
  constexpr char kFailpoint[] = "collective.reduce_scatter";
  return Call(timeout, [&](Deadline& deadline) {
    if (count == 0) return Synchronise(kFailpoint, deadline);
    return RingReduceScatter(
        EqualBlocks(static_cast<char*>(data), count * SizeOf(type)), type,
        kFailpoint, deadline);
  });
}

absl::Status MeshCommunicator::Barrier(absl::Duration timeout) {
  return Call(timeout, [&](Deadline& deadline) {
    return Synchronise("collective.barrier", deadline);
  });
}

// After the step with distance d a rank has heard, directly or not, of the
// 2d - 1 ranks before it.
absl::Status MeshCommunicator::Synchronise(const char* failpoint,
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
