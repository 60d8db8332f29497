#include "buffer_floats.h"

#include <cmath>
#include <type_traits>

namespace elasticdl::worker {
namespace {

template <typename T>
void FillFrom(const torch::Tensor& tensor, double weight, float* out) {
  const T* values = tensor.data_ptr<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    out[i] = static_cast<float>(weight * static_cast<double>(values[i]));
  }
}

template <typename T>
void TakeInto(const float* in, double factor, const torch::Tensor& tensor) {
  T* values = tensor.data_ptr<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double value = factor * static_cast<double>(in[i]);
    values[i] = std::is_integral_v<T> ? static_cast<T>(std::llround(value))
                                      : static_cast<T>(value);
  }
}

}  // namespace

bool HasFloats(const torch::Tensor& buffer) {
  const auto type = buffer.scalar_type();
  return type == torch::kFloat32 || type == torch::kFloat64 ||
         type == torch::kInt64;
}

void ToFloats(const torch::Tensor& buffer, double weight, float* out) {
  switch (buffer.scalar_type()) {
    case torch::kFloat32:
      return FillFrom<float>(buffer, weight, out);
    case torch::kFloat64:
      return FillFrom<double>(buffer, weight, out);
    default:
      return FillFrom<int64_t>(buffer, weight, out);
  }
}

void FromFloats(const float* in, double factor, const torch::Tensor& buffer) {
  switch (buffer.scalar_type()) {
    case torch::kFloat32:
      return TakeInto<float>(in, factor, buffer);
    case torch::kFloat64:
      return TakeInto<double>(in, factor, buffer);
    default:
      return TakeInto<int64_t>(in, factor, buffer);
  }
}

}  // namespace elasticdl::worker
