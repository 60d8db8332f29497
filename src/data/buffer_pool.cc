// See buffer_pool.h.
#include "buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "elasticdl/common/check.h"

namespace elasticdl::data::internal {
namespace {

// More than this many idle buffers are freed.
constexpr size_t kMaxFree = 4;
// Large buffers ask for huge pages: fewer faults, fewer misses of the TLB.
constexpr size_t kHugePageBytes = 2 << 20;

Buffer Allocate(size_t size) {
  const bool huge = size >= kHugePageBytes;
  const size_t unit = huge ? kHugePageBytes : 64;
  Buffer buffer;
  buffer.capacity = (std::max<size_t>(size, 1) + unit - 1) / unit * unit;
  buffer.data.reset(static_cast<char*>(aligned_alloc(unit, buffer.capacity)));
  ELASTICDL_CHECK(buffer.data != nullptr);  // as operator new would
  if (huge) madvise(buffer.data.get(), buffer.capacity, MADV_HUGEPAGE);
  return buffer;
}

}  // namespace

std::shared_ptr<char> BufferPool::Get(size_t size) {
  Buffer buffer;
  {
    MutexLock lock(mu_);
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (buffer.capacity < size || buffer.data == nullptr) {
    buffer.data.reset();  // before the new one, to keep the peak low
    buffer = Allocate(size);
  }
  char* data = buffer.data.get();
  // The deleter owns the buffer and moves it back.
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  return std::shared_ptr<char>(data, [owner, pool = weak_from_this()](char*) {
    if (auto alive = pool.lock()) alive->Return(std::move(*owner));
  });
}

void BufferPool::Return(Buffer buffer) {
  MutexLock lock(mu_);
  if (free_.size() < kMaxFree) free_.push_back(std::move(buffer));
}

}  // namespace elasticdl::data::internal
