#include "device_sum.h"

#include <c10/core/StreamGuard.h>

#include "device.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

collective::DataType WireType(const torch::Tensor& data) {
  switch (data.scalar_type()) {
    case torch::kBFloat16:
      return collective::DataType::kBFloat16;
    case torch::kFloat16:
      return collective::DataType::kFloat16;
    default:
      return collective::DataType::kFloat32;
  }
}

}  // namespace

DeviceSum::DeviceSum(FlatParameters& flat, GradientCompression compression,
                     size_t num_buckets)
    : flat_(flat), compression_(compression), side_(SideStream(flat.device())) {
  for (size_t i = 0; i < num_buckets; ++i) {
    events_.push_back(std::make_unique<StreamEvent>(flat.device()));
  }
}

void DeviceSum::MarkReady(size_t bucket) {
  events_[bucket]->Record(CurrentStream(flat_.device()));
}

void DeviceSum::Join() {
  const c10::Stream stream = CurrentStream(flat_.device());
  for (const auto& event : events_) event->Block(stream);
}

absl::Status DeviceSum::Reduce(collective::Communicator& communicator,
                               size_t bucket, size_t begin, size_t count,
                               size_t head, absl::Duration timeout) {
  StreamEvent& event = *events_[bucket];
  const torch::NoGradGuard no_grad;
  const c10::StreamGuard guard(side_);
  const auto sum_head = [&]() -> absl::Status {
    if (head == 0) return absl::OkStatus();
    return Sum(communicator, event, flat_.GradientRange(0, 0, head), timeout);
  };
  if (compression_ == GradientCompression::kNone) {
    // A sum of the host is there as a whole, or it fails.
    if (communicator.device() == nullptr) {
      return Sum(communicator, event, flat_.GradientRange(begin, count, head),
                 timeout);
    }
    ELASTICDL_RETURN_IF_ERROR(
        Sum(communicator, event, flat_.GradientRange(begin, count), timeout));
    return sum_head();
  }
  const torch::Tensor full = flat_.GradientRange(begin, count);
  if (!half_.defined()) {
    half_ = torch::empty(
        {static_cast<int64_t>(flat_.size())},
        full.options().dtype(compression_ == GradientCompression::kBFloat16
                                 ? torch::kBFloat16
                                 : torch::kFloat16));
  }
  // Buckets have places of their own: a device communicator may still be
  // sending one when the next one is written.
  const torch::Tensor half =
      half_.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(count));
  event.Block(side_);
  half.copy_(full);
  event.Record(side_);
  ELASTICDL_RETURN_IF_ERROR(Sum(communicator, event, half, timeout));
  ELASTICDL_RETURN_IF_ERROR(sum_head());
  event.Block(side_);
  full.copy_(half);
  event.Record(side_);
  return absl::OkStatus();
}

absl::Status DeviceSum::Sum(collective::Communicator& communicator,
                            StreamEvent& event, const torch::Tensor& data,
                            absl::Duration timeout) {
  const auto count = static_cast<size_t>(data.numel());
  if (collective::DeviceCommunicator* device = communicator.device()) {
    return device->AllReduce(data.data_ptr(), count, WireType(data),
                             event.get(), timeout);
  }
  // Nothing to add; the event stays where it is.
  if (communicator.size() == 1) return communicator.Barrier(timeout);
  const torch::Tensor host = Staging(data);
  event.Block(side_);
  host.copy_(data, /*non_blocking=*/true);
  // Only work of this device is in front of it.
  Synchronize(side_);
  ELASTICDL_RETURN_IF_ERROR(
      communicator.AllReduce(host.data_ptr(), count, WireType(data), timeout));
  data.copy_(host, /*non_blocking=*/true);
  event.Record(side_);
  return absl::OkStatus();
}

torch::Tensor DeviceSum::Staging(const torch::Tensor& data) {
  torch::Tensor& all =
      data.scalar_type() == torch::kFloat32 ? staging_ : half_staging_;
  if (!all.defined()) {
    const size_t floats = flat_.size() + flat_.head_size();
    all = torch::empty(
        {static_cast<int64_t>(floats)},
        torch::TensorOptions(data.scalar_type()).pinned_memory(true));
  }
  // The place that `data` has on the device.
  return all.narrow(0, data.storage_offset(), data.numel());
}

}  // namespace elasticdl::worker
