// Operators of the test device: memory, copies and views are its own, the rest
// computes on the CPU.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <utility>

#include "test_device.h"

namespace elasticdl::test_device {
namespace {

using at::Tensor;
using OptionalTensor = c10::optional<Tensor>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// ---- tensors ----

Tensor Empty(at::IntArrayRef size, c10::optional<at::ScalarType> dtype,
             c10::optional<at::Layout>, c10::optional<at::Device> device,
             c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &DeviceMemory(), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                    c10::optional<at::ScalarType> dtype,
                    c10::optional<at::Layout>, c10::optional<at::Device> device,
                    c10::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &DeviceMemory(), kKeys,
                                           c10::dtype_or_default(dtype));
}

// Makes the storage large enough and keeps its content.
void Grow(const Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return;
  const c10::OptionalDeviceGuard guard(tensor.device());
  c10::DataPtr fresh = DeviceMemory().allocate(bytes);
  if (storage->nbytes() > 0) {
    Check(cudaMemcpyAsync(fresh.get(), storage->data(), storage->nbytes(),
                          cudaMemcpyDeviceToDevice,
                          CurrentStream(tensor.device())),
          "cudaMemcpyAsync");
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

const Tensor& Resize(const Tensor& self, at::IntArrayRef size,
                     c10::optional<at::MemoryFormat> format) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  if (self.numel() > 0) {
    Grow(self, at::detail::computeStorageNbytes(
                   self.sizes(), self.strides(),
                   static_cast<size_t>(self.element_size()),
                   static_cast<size_t>(self.storage_offset())));
  }
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

Tensor& SetStorage(Tensor& self, at::Storage source, int64_t offset,
                   at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return self;
}

void RecordStream(Tensor& tensor, c10::Stream stream) {
  RecordUse(tensor.storage().data_ptr(), stream);
}

// ---- copies, in the order of the current stream ----

// Bytes between the first and the last element.
size_t Extent(const Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(),
      static_cast<size_t>(tensor.element_size()));
}

void Enqueue(const Tensor& to, const Tensor& from, cudaMemcpyKind kind) {
  const Tensor& there = to.is_cpu() ? from : to;
  Check(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), Extent(to), kind,
                        CurrentStream(there.device())),
        "cudaMemcpyAsync");
}

Tensor HostLike(const Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kCPU));
}

Tensor ToHost(const Tensor& tensor) {
  const Tensor host = HostLike(tensor);
  if (tensor.numel() == 0) return host;
  Enqueue(host, tensor, cudaMemcpyDeviceToHost);
  Check(cudaStreamSynchronize(CurrentStream(tensor.device())),
        "cudaStreamSynchronize");
  return host;
}

Tensor& Copy(Tensor& to, const Tensor& source, bool non_blocking) {
  if (to.numel() == 0) return to;
  const Tensor from =
      source.sizes() == to.sizes() ? source : source.expand(to.sizes());
  const bool alike =
      from.dtype() == to.dtype() && from.strides() == to.strides() &&
      to.is_non_overlapping_and_dense() && !from.is_conj() && !from.is_neg();
  const c10::OptionalDeviceGuard guard(to.is_cpu() ? from.device()
                                                   : to.device());
  if (to.is_cpu()) {
    if (alike && non_blocking && IsPinned(to.data_ptr())) {
      Enqueue(to, from, cudaMemcpyDeviceToHost);
    } else {
      to.copy_(ToHost(from));
    }
  } else if (alike && !from.is_cpu()) {
    Enqueue(to, from, cudaMemcpyDeviceToDevice);
  } else if (alike && non_blocking && IsPinned(from.data_ptr())) {
    Enqueue(to, from, cudaMemcpyHostToDevice);
  } else {
    // What lies between the elements of the target is kept.
    const Tensor host =
        to.is_non_overlapping_and_dense() ? HostLike(to) : ToHost(to);
    host.copy_(from.is_cpu() ? from : ToHost(from));
    // Not pinned, so the call waits for the copy.
    Enqueue(to, host, cudaMemcpyHostToDevice);
  }
  return to;
}

Tensor CopyFromAndResize(const Tensor& source, const Tensor& to) {
  if (source.sizes() != to.sizes()) to.resize_(source.sizes());
  Tensor target = to;
  return Copy(target, source, /*non_blocking=*/false);
}

bool IsPinnedTensor(const Tensor& tensor, c10::optional<at::Device>) {
  return tensor.is_cpu() && IsPinned(tensor.storage().data());
}

Tensor PinMemory(const Tensor& tensor, c10::optional<at::Device>) {
  // The order in memory is kept, as libtorch does.
  Tensor pinned = at::detail::empty_strided_generic(
      tensor.sizes(), tensor.strides(), &PinnedMemory(),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.scalar_type());
  return pinned.copy_(tensor);
}

// ---- operators that the fallback cannot do ----

Tensor HostOf(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->cpu() : Tensor();
}

// CPU kernels of 1.13 know little of half floats: they compute in floats, and
// the result is rounded, as CUDA's do.
bool IsHalf(const Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kHalf ||
                              tensor.scalar_type() == at::kBFloat16);
}
Tensor Wide(const Tensor& tensor) {
  return IsHalf(tensor) ? tensor.to(at::kFloat) : tensor;
}

// CUDA refuses operands of several devices; the fallback would take them. A
// number on the CPU is fine.
void RefuseOtherDevices(const Tensor& tensor, c10::optional<at::Device>& device,
                        const std::string& name) {
  if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
  if (!device) device = tensor.device();
  TORCH_CHECK(tensor.device() == *device,
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              *device, " and ", tensor.device(), "! (", name, ")");
}

// Its kernel for any backend hides it from the fallback.
Tensor Convolution(const Tensor& x, const Tensor& weight,
                   const OptionalTensor& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding,
                   int64_t groups) {
  c10::optional<at::Device> device;
  RefuseOtherDevices(x, device, "convolution");
  RefuseOtherDevices(weight, device, "convolution");
  return at::convolution(Wide(x.cpu()), Wide(weight.cpu()), Wide(HostOf(bias)),
                         stride, padding, dilation, transposed, output_padding,
                         groups)
      .to(x.options());
}

std::tuple<Tensor, Tensor, Tensor> ConvolutionBackward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  const auto [dx, dw, db] = at::convolution_backward(
      Wide(gradient.cpu()), Wide(x.cpu()), Wide(weight.cpu()), bias_sizes,
      stride, padding, dilation, transposed, output_padding, groups, mask);
  const auto back = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.to(x.options()) : tensor;
  };
  return {back(dx), back(dw), back(db)};
}

// Its schema does not say that the running statistics change.
std::tuple<Tensor, Tensor, Tensor> BatchNorm(
    const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& mean, const OptionalTensor& variance, bool training,
    double momentum, double epsilon) {
  const Tensor host_mean = HostOf(mean);
  const Tensor host_variance = HostOf(variance);
  const auto [y, saved_mean, saved_variance] = at::native_batch_norm(
      Wide(x.cpu()), HostOf(weight), HostOf(bias), host_mean, host_variance,
      training, momentum, epsilon);
  if (training && host_mean.defined()) {
    mean->copy_(host_mean);
    variance->copy_(host_variance);
  }
  return {y.to(x.options()), saved_mean.to(x.device()),
          saved_variance.to(x.device())};
}

// ---- everything else ----

bool HasTensors(const c10::IValue& value) {
  if (!value.isList() || value.isTensorList()) return false;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor()) return true;
  }
  return false;
}

void CheckOperands(const c10::OperatorHandle& op,
                   const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = toString(op.operator_name());
  for (const c10::Argument& result : schema.returns()) {
    TORCH_CHECK(!result.alias_info() || result.alias_info()->isWrite(), name,
                " is a view: the test device must register it");
  }
  c10::optional<at::Device> device;
  for (const c10::IValue& value :
       torch::jit::last(stack, schema.arguments().size())) {
    if (value.isTensor()) {
      RefuseOtherDevices(value.toTensor(), device, name);
    } else if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) {
        RefuseOtherDevices(tensor, device, name);
      }
    }
  }
}

// The operands as floats. Nothing: there were no half floats; else their type.
c10::optional<at::ScalarType> Widen(torch::jit::Stack& stack,
                                    const c10::FunctionSchema& schema) {
  c10::optional<at::ScalarType> type;
  const size_t below = stack.size() - schema.arguments().size();
  const auto wide = [&type](const Tensor& tensor) {
    if (IsHalf(tensor)) type = tensor.scalar_type();
    return Wide(tensor);
  };
  for (size_t i = below; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    const std::string& name = schema.arguments()[i - below].name();
    if (name == "input_dtype" && value.isInt()) {
      // Of the operand of the forward pass, and so of the result.
      value = static_cast<int64_t>(at::kFloat);
    } else if (value.isTensor()) {
      value = wide(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<Tensor> tensors = value.toTensorVector();
      for (Tensor& tensor : tensors) tensor = wide(tensor);
      value = std::move(tensors);
    }
  }
  return type;
}

// The operator in floats, if its operands are half floats; false if not.
bool FallbackInFloats(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                      const torch::jit::Stack& operands) {
  const c10::FunctionSchema& schema = op.schema();
  *stack = operands;
  const auto type = Widen(*stack, schema);
  if (!type) return false;
  const size_t below = stack->size() - schema.arguments().size();
  at::native::cpu_fallback(op, stack);
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& value = (*stack)[below + i];
    if (!value.isTensor() || !value.toTensor().defined() ||
        value.toTensor().scalar_type() != at::kFloat) {
      continue;
    }
    const c10::AliasInfo* alias = schema.returns()[i].alias_info();
    if (alias == nullptr) {
      value = value.toTensor().to(*type);
      continue;
    }
    // What it writes to.
    for (size_t j = 0; j < schema.arguments().size(); ++j) {
      const c10::AliasInfo* written = schema.arguments()[j].alias_info();
      if (written == nullptr || !(*written == *alias)) continue;
      Tensor target = operands[below + j].toTensor();
      value = target.copy_(value.toTensor());
    }
  }
  return true;
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  CheckOperands(op, *stack);
  // Indices: 1.13 leaves lists of optional tensors where they are. (CUDA takes
  // them from the CPU, too.)
  for (c10::IValue& value : *stack) {
    if (!HasTensors(value)) continue;
    c10::List<OptionalTensor> host;
    for (const c10::IValue& element : value.toListRef()) {
      host.push_back(element.isTensor() && element.toTensor().defined()
                         ? OptionalTensor(element.toTensor().cpu())
                         : c10::nullopt);
    }
    value = std::move(host);
  }
  const torch::jit::Stack operands = *stack;
  try {
    at::native::cpu_fallback(op, stack);
  } catch (const c10::Error&) {
    if (!FallbackInFloats(op, stack, operands)) throw;
  }
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", Empty);
  m.impl("empty_strided", EmptyStrided);
  m.impl("resize_", Resize);
  m.impl("set_.source_Storage_storage_offset", SetStorage);
  m.impl("record_stream", RecordStream);
  // libtorch believes that it can copy to CUDA itself.
  m.impl("copy_", Copy);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("is_pinned", IsPinnedTensor);
  m.impl("_pin_memory", PinMemory);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("convolution", Convolution);
  m.impl("convolution_backward", ConvolutionBackward);
  m.impl("native_batch_norm", BatchNorm);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace
}  // namespace elasticdl::test_device
