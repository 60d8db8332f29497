#include "server_dense.h"

#include <cstring>

#include "buffer_floats.h"

namespace elasticdl::worker {
namespace {

// Statistics have one value per channel. What is larger is a constant (a mask,
// positions), and would be sent with every minibatch for nothing.
constexpr int64_t kMostBufferValues = 65536;

}  // namespace

ServerDense::ServerDense(Replica& replica, bool copies)
    : replica_(replica), parameters_(replica.parameters().size()) {
  for (const Buffer& buffer : replica.buffers()) {
    const torch::Tensor& tensor = buffer.second;
    if (!HasFloats(tensor) || tensor.numel() > kMostBufferValues) continue;
    buffers_.push_back(buffer);
    buffer_values_ += static_cast<size_t>(tensor.numel());
  }
  if (!copies && buffers_.empty()) return;
  pulled_ = Values();
  gradients_.resize(size());
}

void ServerDense::AddTo(v1::PsDefinition& definition) const {
  for (const FlatParameters::Slice& slice : replica_.parameters().slices()) {
    v1::PsDefinition::Dense& dense = *definition.add_dense();
    dense.set_name(slice.name);
    dense.mutable_shape()->Assign(slice.shape.begin(), slice.shape.end());
  }
  for (const auto& [name, tensor] : buffers_) {
    v1::PsDefinition::Dense& dense = *definition.add_dense();
    dense.set_name(name);
    dense.set_buffer(true);
    dense.mutable_shape()->Assign(tensor.sizes().begin(), tensor.sizes().end());
  }
}

float* ServerDense::pull_target() {
  return pulled_.empty() ? replica_.parameters().values() : pulled_.data();
}

void ServerDense::TakePulled() {
  if (!pulled_.empty()) SetValues(pulled_);
}

const float* ServerDense::Gradients() {
  if (gradients_.empty()) return replica_.parameters().gradients();
  std::memcpy(gradients_.data(), replica_.parameters().gradients(),
              parameters_ * sizeof(float));
  GetBuffers(gradients_.data() + parameters_);
  return gradients_.data();
}

std::vector<float> ServerDense::Values() const {
  std::vector<float> values(size());
  std::memcpy(values.data(), replica_.parameters().values(),
              parameters_ * sizeof(float));
  GetBuffers(values.data() + parameters_);
  return values;
}

std::vector<std::vector<float>> ServerDense::Slots() const {
  std::vector<std::vector<float>> slots;
  for (const float* slot : replica_.slots()) {
    slots.emplace_back(slot, slot + parameters_).resize(size());
  }
  return slots;
}

void ServerDense::SetValues(const std::vector<float>& values) {
  std::memcpy(replica_.parameters().values(), values.data(),
              parameters_ * sizeof(float));
  SetBuffers(values.data() + parameters_);
}

void ServerDense::GetBuffers(float* out) const {
  for (const auto& [name, tensor] : buffers_) {
    ToFloats(tensor, 1, out);
    out += tensor.numel();
  }
}

void ServerDense::SetBuffers(const float* in) {
  for (const auto& [name, tensor] : buffers_) {
    FromFloats(in, 1, tensor);
    in += tensor.numel();
  }
}

}  // namespace elasticdl::worker
