#include "batch_mover.h"

#include <c10/core/StreamGuard.h>

#include <utility>

namespace elasticdl::worker {
namespace {

// The batch with each of its tensors replaced by f(tensor).
template <typename F>
Batch ForTensors(const Batch& batch, const F& f) {
  Batch result;
  for (const auto& [name, tensor] : batch.features.items()) {
    result.features.Add(name, f(tensor));
  }
  if (batch.labels.defined()) result.labels = f(batch.labels);
  return result;
}

}  // namespace

Batch Pinned(const Batch& batch, c10::Device device) {
  if (device.is_cpu()) return batch;
  return ForTensors(batch, [](const torch::Tensor& tensor) {
    return tensor.is_cpu() ? tensor.pin_memory() : tensor;
  });
}

Batch ChannelsLast(const Batch& batch) {
  return ForTensors(batch, [](const torch::Tensor& tensor) {
    return tensor.dim() == 4 && tensor.is_floating_point()
               ? tensor.contiguous(torch::MemoryFormat::ChannelsLast)
               : tensor;
  });
}

BatchMover::Moving BatchMover::Start(Batch host) {
  const torch::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream_);
  Moving moving;
  moving.batch = ForTensors(host, [this](const torch::Tensor& tensor) {
    return tensor.to(device_, /*non_blocking=*/true);
  });
  moving.host = std::move(host);
  moving.arrived = std::make_shared<StreamEvent>(device_);
  moving.arrived->Record(stream_);
  return moving;
}

void BatchMover::Arrive(const Moving& moving) const {
  const c10::Stream stream = CurrentStream(device_);
  moving.arrived->Block(stream);
  ForTensors(moving.batch, [&stream](const torch::Tensor& tensor) {
    tensor.record_stream(stream);
    return tensor;
  });
}

}  // namespace elasticdl::worker
