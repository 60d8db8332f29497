#include "buffer_sync.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "buffer_floats.h"

namespace elasticdl::worker {
namespace {

bool Changed(const torch::Tensor& a, const torch::Tensor& b) {
  return memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0;
}

// The order of types in the sum.
int TypeOrder(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return 0;
    case torch::kFloat64:
      return 1;
    default:
      return 2;
  }
}

// Half away from zero, as std::llround.
torch::Tensor Rounded(const torch::Tensor& values) {
  return values.abs().add_(0.5).floor_().mul_(values.sign());
}

}  // namespace

void MoveBuffers(const NamedTensors& buffers, c10::Device device) {
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> by_type;
  std::set<const void*> seen;
  for (const auto& [name, tensor] : buffers) {
    // A module may be part of the network twice.
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    by_type[tensor.scalar_type()].push_back(tensor);
  }
  for (auto& [type, tensors] : by_type) {
    int64_t total = 0;
    for (const torch::Tensor& tensor : tensors) total += tensor.numel();
    const torch::Tensor flat =
        torch::empty({total}, torch::TensorOptions(type).device(device));
    int64_t offset = 0;
    for (torch::Tensor& tensor : tensors) {
      const torch::Tensor view =
          flat.narrow(0, offset, tensor.numel()).view(tensor.sizes());
      view.copy_(tensor);
      tensor.set_data(view);
      offset += tensor.numel();
    }
  }
}

BufferSync::BufferSync(const NamedTensors& buffers, const Copy& copy) {
  std::set<const void*> seen;
  for (const auto& [name, tensor] : buffers) {
    if (!HasFloats(tensor)) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    entries_.push_back({tensor, torch::Tensor(), torch::Tensor()});
    size_ += 1 + static_cast<size_t>(tensor.numel());
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) {
                     return TypeOrder(a.tensor) < TypeOrder(b.tensor);
                   });
  if (entries_.empty() || entries_[0].tensor.is_cpu()) {
    for (Entry& entry : entries_) entry.committed = copy(entry.tensor);
    return;
  }
  for (size_t begin = 0; begin < entries_.size();) {
    size_t end = begin;
    while (end < entries_.size() && TypeOrder(entries_[end].tensor) ==
                                        TypeOrder(entries_[begin].tensor)) {
      ++end;
    }
    AddGroup(begin, end);
    begin = end;
  }
}

void BufferSync::AddGroup(size_t begin, size_t end) {
  int64_t total = 0;
  std::vector<int64_t> entry;
  for (size_t i = begin; i < end; ++i) {
    const int64_t count = entries_[i].tensor.numel();
    total += count;
    entry.insert(entry.end(), static_cast<size_t>(count),
                 static_cast<int64_t>(i));
  }
  const torch::Tensor& first = entries_[begin].tensor;
  Group group;
  group.flat = first.as_strided({total}, {1}, first.storage_offset());
  group.committed = group.flat.clone();
  group.entry = torch::tensor(entry, torch::kLong).to(first.device());
  groups_.push_back(std::move(group));
}

void BufferSync::Fill(double weight, float* out) const {
  float* values = out + entries_.size();
  for (const Entry& entry : entries_) {
    const bool changed = Changed(entry.tensor, entry.committed);
    *out++ = changed ? 1 : 0;
    ToFloats(entry.tensor, weight, values);
    values += entry.tensor.numel();
  }
}

void BufferSync::Fill(double weight, const torch::Tensor& out) const {
  if (groups_.empty()) return;
  const torch::NoGradGuard no_grad;
  auto offset = static_cast<int64_t>(entries_.size());
  const torch::Tensor flags = out.narrow(0, 0, offset);
  flags.zero_();
  for (const Group& group : groups_) {
    flags.index_add_(0, group.entry,
                     group.flat.ne(group.committed).to(torch::kFloat));
    out.narrow(0, offset, group.flat.numel())
        .copy_(group.flat.to(torch::kDouble).mul_(weight));
    offset += group.flat.numel();
  }
  flags.gt_(0);
}

void BufferSync::Take(const float* sum, double factor) {
  const float* values = sum + entries_.size();
  for (Entry& entry : entries_) {
    const bool changed = *sum++ != 0;
    if (changed) FromFloats(values, factor, entry.tensor);
    values += entry.tensor.numel();
  }
}

void BufferSync::Take(const torch::Tensor& sum, double factor) {
  if (groups_.empty()) return;
  const torch::NoGradGuard no_grad;
  auto offset = static_cast<int64_t>(entries_.size());
  const torch::Tensor flags = sum.narrow(0, 0, offset);
  for (const Group& group : groups_) {
    torch::Tensor fresh = sum.narrow(0, offset, group.flat.numel())
                              .to(torch::kDouble)
                              .mul(factor);
    if (group.flat.scalar_type() == torch::kInt64) fresh = Rounded(fresh);
    const torch::Tensor changed = flags.index_select(0, group.entry).ne(0);
    group.flat.copy_(
        torch::where(changed, fresh.to(group.flat.scalar_type()), group.flat));
    offset += group.flat.numel();
  }
}

void BufferSync::Commit() {
  const torch::NoGradGuard no_grad;
  for (Group& group : groups_) group.committed.copy_(group.flat);
  if (!groups_.empty()) return;
  for (Entry& entry : entries_) {
    memcpy(entry.committed.data_ptr(), entry.tensor.data_ptr(),
           entry.tensor.nbytes());
  }
}

void BufferSync::RollBack() {
  const torch::NoGradGuard no_grad;
  for (Group& group : groups_) group.flat.copy_(group.committed);
  if (!groups_.empty()) return;
  for (Entry& entry : entries_) {
    memcpy(entry.tensor.data_ptr(), entry.committed.data_ptr(),
           entry.tensor.nbytes());
  }
}

void BufferSync::SetAside() {
  for (Entry& entry : entries_) entry.aside = entry.tensor.detach().clone();
  RollBack();
}

void BufferSync::Recall() {
  for (Entry& entry : entries_) {
    memcpy(entry.tensor.data_ptr(), entry.aside.data_ptr(),
           entry.tensor.nbytes());
  }
}

}  // namespace elasticdl::worker
