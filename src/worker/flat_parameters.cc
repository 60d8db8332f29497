#include "flat_parameters.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "large_array.h"

namespace elasticdl::worker {

absl::StatusOr<FlatParameters> FlatParameters::Adopt(
    const NamedTensors& parameters, size_t head, const ArrayMaker& make) {
  FlatParameters flat;
  flat.head_ = head;
  int64_t total = 0;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    if (parameter.scalar_type() != torch::kFloat32 ||
        parameter.layout() != torch::kStrided ||
        (!flat.parameters_.empty() &&
         parameter.device() != flat.parameters_[0].device())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter '", name, "' is ", parameter.toString(),
          "; only dense float32 parameters on one device can be trained"));
    }
    Slice slice;
    slice.name = name;
    slice.shape = parameter.sizes().vec();
    slice.offset = static_cast<size_t>(total);
    slice.size = static_cast<size_t>(parameter.numel());
    total += parameter.numel();
    flat.slices_.push_back(std::move(slice));
    flat.parameters_.push_back(parameter);
  }
  if (total == 0) {
    return absl::InvalidArgumentError("the model has no trainable parameter");
  }
  const c10::Device device = flat.parameters_[0].device();
  torch::NoGradGuard no_grad;
  const auto array = [&](int64_t floats) {
    return make ? make(floats) : MakeArray(floats, device);
  };
  flat.values_ = array(total);
  flat.gradients_ = array(static_cast<int64_t>(head) + total);
  for (size_t i = 0; i < flat.parameters_.size(); ++i) {
    const Slice& slice = flat.slices_[i];
    torch::Tensor& parameter = flat.parameters_[i];
    const auto view = [&](const torch::Tensor& whole, size_t first) {
      return whole
          .narrow(0, static_cast<int64_t>(first + slice.offset),
                  static_cast<int64_t>(slice.size))
          .view(slice.shape);
    };
    torch::Tensor values = view(flat.values_, 0);
    values.copy_(parameter);
    parameter.set_data(values);
    flat.gradient_views_.push_back(view(flat.gradients_, head));
    parameter.mutable_grad() = flat.gradient_views_.back();
  }
  TrimMemory();
  // Touched here, and not in the first step.
  flat.gradients_.zero_();
  return flat;
}

void FlatParameters::ZeroGradients() {
  if (values_.is_cpu()) {
    memset(gradients(), 0, size() * sizeof(float));
  } else {
    gradient_tensor().zero_();
  }
}

void FlatParameters::CollectGradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) CollectGradient(i);
}

void FlatParameters::CollectGradient(size_t index) {
  torch::Tensor& gradient = parameters_[index].mutable_grad();
  const torch::Tensor& view = gradient_views_[index];
  if (gradient.is_same(view)) return;
  torch::NoGradGuard no_grad;
  if (gradient.defined() && gradient.data_ptr() != view.data_ptr()) {
    if (gradient.is_sparse()) {
      view.copy_(gradient.to_dense());
    } else {
      view.copy_(gradient);
    }
  }
  gradient = view;
}

}  // namespace elasticdl::worker
