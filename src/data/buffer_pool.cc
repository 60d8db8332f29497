// See buffer_pool.h.
#include "buffer_pool.h"

#include <utility>

namespace elasticdl::data::internal {
namespace {

// More than this many idle buffers are freed.
constexpr size_t kMaxFree = 4;

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
    buffer.data.reset(new char[size]);
    buffer.capacity = size;
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
