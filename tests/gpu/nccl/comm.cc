#include "comm.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace test_nccl {
namespace {

bool IsSet(const char* name, const char* value) {
  const char* const set = std::getenv(name);
  return set != nullptr && std::strcmp(set, value) == 0;
}

float FromBfloat16(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

uint16_t ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  // To the nearest, ties to even.
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Unless an abort has raised it further.
void RaiseTo(std::atomic<uint64_t>& number, uint64_t to) {
  uint64_t now = number;
  while (now < to && !number.compare_exchange_weak(now, to)) {
  }
}

template <typename T>
struct Plain {
  using Stored = T;
  using Summed = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};
struct Half {
  using Stored = _Float16;
  using Summed = float;
  static float Load(Stored value) { return static_cast<float>(value); }
  static Stored Store(float value) { return static_cast<Stored>(value); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  using Summed = float;
  static float Load(Stored value) { return FromBfloat16(value); }
  static Stored Store(float value) { return ToBfloat16(value); }
};

template <typename Type>
void Add(Link& link, size_t count, void* out) {
  using Stored = typename Type::Stored;
  auto* const to = static_cast<Stored*>(out);
  for (size_t i = 0; i < count; ++i) {
    typename Type::Summed sum = 0;
    for (int rank = 0; rank < link.size(); ++rank) {
      sum += Type::Load(reinterpret_cast<const Stored*>(link.Slot(rank))[i]);
    }
    to[i] = Type::Store(sum);
  }
}

}  // namespace

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

void Link::Attach(const std::string& gpu) {
  if (segment_ == nullptr) {
    // Whoever made the id is dead.
    state_ = ncclSystemError;
    return;
  }
  RankState& own = segment_->rank(rank_);
  gpu.copy(own.gpu, sizeof(own.gpu) - 1);
  own.pid = getpid();
  ++segment_->state().attached;
  segment_->Notify();
  segment_->Await([this] {
    return aborted_ || (segment_->state().attached >= size_ &&
                        !IsSet("TEST_NCCL_INIT", "hang"));
  });
  if (!aborted_) state_ = HasDuplicateGpu() ? ncclInvalidUsage : ncclSuccess;
}

std::string Link::ShrinkName(int number, bool maker) {
  if (segment_ == nullptr || number >= kMaxShrinks) return "";
  ShrinkState& shrink = segment_->state().shrinks[number];
  if (maker) {
    Segment::Create().copy(shrink.name, sizeof(shrink.name) - 1);
    shrink.made = 1;
    segment_->Notify();
  }
  segment_->Await([&] { return shrink.made != 0; });
  return shrink.name;
}

bool Link::HasDuplicateGpu() {
  for (int a = 0; a < size_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (std::strcmp(segment_->rank(a).gpu, segment_->rank(b).gpu) == 0) {
        return true;
      }
    }
  }
  return false;
}

void Link::Finalize() {
  AwaitIdle();
  if (aborted_) return;
  segment_->rank(rank_).finalized = 1;
  segment_->Notify();
  segment_->Await([this] {
    for (int rank = 0; rank < size_; ++rank) {
      if (segment_->rank(rank).finalized == 0) return aborted_.load();
    }
    return true;
  });
  if (!aborted_) state_ = ncclSuccess;
}

// As NCCL's kernels: they leave their loops, and let those of the others go on
// with whatever is in the buffers.
void Link::Abort() {
  aborted_ = true;
  if (segment_ == nullptr) return;
  RankState& own = segment_->rank(rank_);
  own.aborted = 1;
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  own.read = kAll;
  own.shown = kAll;
  segment_->Notify();
}

void Link::AwaitAllAborted() {
  if (segment_ == nullptr || segment_->state().attached < size_) return;
  segment_->Await([this] {
    for (int rank = 0; rank < size_; ++rank) {
      RankState& other = segment_->rank(rank);
      if (other.aborted == 0 && !IsDead(other.pid)) return false;
    }
    return true;
  });
}

bool Link::Begin() {
  ++running_;
  // After counting: Abort looks at these in the other order.
  if (!aborted_) return true;
  End();
  return false;
}

void Link::End() {
  --running_;
  segment_->Notify();
}

void Link::AwaitIdle() {
  if (segment_ == nullptr) return;
  segment_->Await([this] { return running_ == 0; });
}

bool Link::AwaitAll(std::atomic<uint64_t> RankState::*what, uint64_t number) {
  const bool tells = IsSet("TEST_NCCL_PEER_DEATH", "remote_error");
  segment_->Await([&] {
    if (aborted_) return true;
    for (int rank = 0; rank < size_; ++rank) {
      RankState& other = segment_->rank(rank);
      if ((other.*what) >= number) continue;
      if (tells && IsDead(other.pid)) state_ = ncclRemoteError;
      return false;
    }
    return true;
  });
  return !aborted_;
}

void Link::CheckSame(const Operation& operation) {
  for (int rank = 0; rank < size_; ++rank) {
    if (segment_->rank(rank).aborted != 0) continue;
    const Operation& other = segment_->rank(rank).operation;
    if (other.kind == operation.kind && other.type == operation.type &&
        other.root == operation.root && other.count == operation.count) {
      continue;
    }
    std::fprintf(stderr,
                 "test nccl: rank %d calls operation %d of %llu elements, rank "
                 "%d calls operation %d of %llu\n",
                 rank_, operation.kind,
                 static_cast<unsigned long long>(operation.count), rank,
                 other.kind, static_cast<unsigned long long>(other.count));
    std::abort();
  }
}

bool Link::Exchange(const void* own, size_t bytes, const Operation& operation,
                    const std::function<void()>& read) {
  // All have read what was in the slots before.
  if (!AwaitAll(&RankState::read, number_)) return false;
  RankState& self = segment_->rank(rank_);
  self.operation = operation;
  if (bytes > 0) std::memcpy(self.slot, own, bytes);
  RaiseTo(self.shown, ++number_);
  segment_->Notify();
  if (!AwaitAll(&RankState::shown, number_)) return false;
  CheckSame(operation);
  read();
  RaiseTo(self.read, number_);
  segment_->Notify();
  return true;
}

void Link::Sum(ncclDataType_t type, size_t count, void* out) {
  switch (type) {
    case ncclFloat32:
      return Add<Plain<float>>(*this, count, out);
    case ncclFloat64:
      return Add<Plain<double>>(*this, count, out);
    case ncclInt32:
      return Add<Plain<int32_t>>(*this, count, out);
    case ncclInt64:
      return Add<Plain<int64_t>>(*this, count, out);
    case ncclFloat16:
      return Add<Half>(*this, count, out);
    case ncclBfloat16:
      return Add<Bfloat16>(*this, count, out);
    default:
      std::fprintf(stderr, "test nccl: cannot add up type %d\n", type);
      std::abort();
  }
}

}  // namespace test_nccl
