#include "buffer_sync.h"

#include <cmath>
#include <cstring>

namespace elasticdl::worker {
namespace {

bool Changed(const torch::Tensor& a, const torch::Tensor& b) {
  return memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0;
}

template <typename T>
void FillFrom(const torch::Tensor& tensor, double weight, float* out) {
  const T* values = tensor.data_ptr<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    out[i] = static_cast<float>(weight * static_cast<double>(values[i]));
  }
}

template <typename T>
void TakeInto(const float* sum, double factor, const torch::Tensor& tensor) {
  T* values = tensor.data_ptr<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = factor * static_cast<double>(sum[i]);
    values[i] = std::is_integral_v<T> ? static_cast<T>(std::llround(value))
                                      : static_cast<T>(value);
  }
}

}  // namespace

BufferSync::BufferSync(const NamedTensors& buffers) {
  for (const auto& [name, tensor] : buffers) {
    const auto type = tensor.scalar_type();
    if (type != torch::kFloat32 && type != torch::kFloat64 &&
        type != torch::kInt64) {
      continue;
    }
    entries_.push_back({tensor, tensor.clone()});
    size_ += 1 + static_cast<size_t>(tensor.numel());
  }
}

void BufferSync::Fill(double weight, float* out) const {
  for (const Entry& entry : entries_) {
    const bool changed = Changed(entry.tensor, entry.committed);
    *out++ = changed ? 1 : 0;
    switch (entry.tensor.scalar_type()) {
      case torch::kFloat32:
        FillFrom<float>(entry.tensor, weight, out);
        break;
      case torch::kFloat64:
        FillFrom<double>(entry.tensor, weight, out);
        break;
      default:
        FillFrom<int64_t>(entry.tensor, weight, out);
    }
    out += entry.tensor.numel();
  }
}

void BufferSync::Take(const float* sum, double factor) {
  for (Entry& entry : entries_) {
    const bool changed = *sum++ != 0;
    if (changed) {
      switch (entry.tensor.scalar_type()) {
        case torch::kFloat32:
          TakeInto<float>(sum, factor, entry.tensor);
          break;
        case torch::kFloat64:
          TakeInto<double>(sum, factor, entry.tensor);
          break;
        default:
          TakeInto<int64_t>(sum, factor, entry.tensor);
      }
    }
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
