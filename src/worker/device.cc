#include "device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::worker {

namespace {

absl::Status Explained(const absl::Status& status) {
  if (status.ok()) return status;
  const absl::string_view text = status.message();
  if (absl::StrContains(text, "out of memory")) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the device has too little memory; a smaller --minibatch_size or "
        "--precision=bf16 may help, and other programs may use it: ",
        text));
  }
  if (absl::StrContains(text, "on the same device") ||
      absl::StrContains(text, "but got different devices") ||
      absl::StrContains(text, "torch.cuda.FloatTensor")) {
    return absl::Status(
        status.code(),
        absl::StrCat(
            "the model mixes tensors of the CPU and of the device; make "
            "tensors with .device(x.device()) of an input x, and register "
            "constants with register_buffer: ",
            text));
  }
  return status;
}

}  // namespace

absl::Status OnDevice(const std::string& what,
                      absl::FunctionRef<absl::Status()> f) {
  try {
    return Explained(f());
  } catch (const std::exception& error) {
    return Explained(
        absl::InternalError(absl::StrCat(what, ": ", error.what())));
  }
}

void UseDevice(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

elasticdl::NamedTensors Moved(const elasticdl::NamedTensors& tensors,
                              c10::Device device) {
  elasticdl::NamedTensors moved;
  for (const auto& [name, tensor] : tensors.items()) {
    moved.Add(name, tensor.to(device));
  }
  return moved;
}

Batch ToDevice(const Batch& batch, c10::Device device) {
  Batch moved;
  moved.features = Moved(batch.features, device);
  if (batch.labels.defined()) moved.labels = batch.labels.to(device);
  return moved;
}

}  // namespace elasticdl::worker
