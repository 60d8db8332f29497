#include "host_mirror.h"

#include "device_stream.h"
#include "elasticdl/common/check.h"

namespace elasticdl::worker {
namespace {

torch::Tensor Bytes(const torch::Tensor& whole) {
  return torch::empty({static_cast<int64_t>(whole.storage().nbytes())},
                      torch::TensorOptions(torch::kByte).pinned_memory(true));
}

// The same memory as bytes, whatever the type and the shape of the tensor.
torch::Tensor AsBytes(const torch::Tensor& tensor) {
  torch::Tensor bytes = torch::empty(
      {0}, tensor.options().dtype(torch::kByte).requires_grad(false));
  bytes.set_(tensor.storage(), 0,
             {static_cast<int64_t>(tensor.storage().nbytes())}, {1});
  return bytes;
}

const void* KeyOf(const torch::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

void HostMirror::Add(const torch::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.numel() == 0) return;
  if (pairs_.count(KeyOf(tensor)) > 0) return;
  pairs_.emplace(KeyOf(tensor), Pair{tensor.detach(), Bytes(tensor)});
}

const HostMirror::Pair& HostMirror::Find(const torch::Tensor& view) const {
  const auto found = pairs_.find(KeyOf(view));
  ELASTICDL_CHECK(found != pairs_.end());
  return found->second;
}

char* HostMirror::Data(const torch::Tensor& view) const {
  if (view.is_cpu() || view.numel() == 0) {
    return static_cast<char*>(view.data_ptr());
  }
  const Pair& pair = Find(view);
  return static_cast<char*>(pair.host.data_ptr()) +
         view.storage_offset() * static_cast<int64_t>(view.element_size());
}

void HostMirror::Fetch() {
  if (pairs_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (auto& [storage, pair] : pairs_) {
    pair.host.copy_(AsBytes(pair.device), /*non_blocking=*/true);
  }
  Synchronize(CurrentStream(pairs_.begin()->second.device.device()));
}

void HostMirror::Store() {
  if (pairs_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (auto& [storage, pair] : pairs_) {
    AsBytes(pair.device).copy_(pair.host, /*non_blocking=*/true);
  }
  // The host may write the bytes again.
  Synchronize(CurrentStream(pairs_.begin()->second.device.device()));
}

}  // namespace elasticdl::worker
