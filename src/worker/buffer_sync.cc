#include "buffer_sync.h"

#include <cstring>

#include "buffer_floats.h"

namespace elasticdl::worker {
namespace {

bool Changed(const torch::Tensor& a, const torch::Tensor& b) {
  return memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0;
}

}  // namespace

BufferSync::BufferSync(const NamedTensors& buffers) {
  for (const auto& [name, tensor] : buffers) {
    if (!HasFloats(tensor)) continue;
    entries_.push_back({tensor, tensor.clone()});
    size_ += 1 + static_cast<size_t>(tensor.numel());
  }
}

void BufferSync::Fill(double weight, float* out) const {
  for (const Entry& entry : entries_) {
    const bool changed = Changed(entry.tensor, entry.committed);
    *out++ = changed ? 1 : 0;
    ToFloats(entry.tensor, weight, out);
    out += entry.tensor.numel();
  }
}

void BufferSync::Take(const float* sum, double factor) {
  for (Entry& entry : entries_) {
    const bool changed = *sum++ != 0;
    if (changed) FromFloats(sum, factor, entry.tensor);
    sum += entry.tensor.numel();
  }
}

void BufferSync::Commit() {
  for (Entry& entry : entries_) {
    memcpy(entry.committed.data_ptr(), entry.tensor.data_ptr(),
           entry.tensor.nbytes());
  }
}

void BufferSync::RollBack() {
  for (Entry& entry : entries_) {
    memcpy(entry.tensor.data_ptr(), entry.committed.data_ptr(),
           entry.tensor.nbytes());
  }
}

}  // namespace elasticdl::worker
