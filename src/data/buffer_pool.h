// Reusable buffers for decompressed chunks, returned when the last user is
// done: new memory of this size would be mapped, zeroed and unmapped every
// time.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "elasticdl/common/mutex.h"

namespace elasticdl::data::internal {

struct FreeBuffer {
  void operator()(char* data) const { free(data); }
};

// Uninitialised memory. Move-only.
struct Buffer {
  std::unique_ptr<char, FreeBuffer> data;
  size_t capacity = 0;
};

// Thread-safe. Shared by its owner and by the buffers that are out.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // At least `size` uninitialised bytes; they return to the pool when the last
  // copy of the pointer is gone, even after the pool's owner is.
  std::shared_ptr<char> Get(size_t size);

 private:
  void Return(Buffer buffer);

  Mutex mu_;
  std::vector<Buffer> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::data::internal
