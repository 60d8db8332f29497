#include "device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::worker {

namespace {

// Payloads of a status that Explained has seen.
constexpr char kFailure[] = "elasticdl/device-failure";
constexpr char kMemory[] = "elasticdl/device-memory";

absl::Status Marked(absl::StatusCode code, const std::string& message,
                    const char* mark) {
  absl::Status status(code, message);
  status.SetPayload(mark, absl::Cord());
  return status;
}

bool IsMarked(const absl::Status& status, const char* mark) {
  return status.GetPayload(mark).has_value();
}

bool ContainsAny(absl::string_view text,
                 std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [text](const char* part) {
    return absl::StrContains(text, part);
  });
}

// What libtorch says of its own accord is for people who debug libtorch.
std::string FirstLine(absl::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

absl::string_view AdviceForFailure(absl::string_view text) {
  if (absl::StrContains(text, "device-side assert")) {
    return "; a kernel found a bad value, often a label or an index out of "
           "range: --device=cpu names it";
  }
  if (ContainsAny(text, {"no kernel image", "invalid device function"})) {
    return "; this libtorch has no code for the compute capability of this "
           "GPU: use another libtorch, another GPU, or --device=cpu";
  }
  if (absl::StrContains(text, "driver version is insufficient")) {
    return "; the NVIDIA driver is older than this libtorch needs: update it, "
           "or use --device=cpu";
  }
  return "";
}

absl::Status Explained(const absl::Status& status) {
  if (status.ok() || IsMarked(status, kFailure) || IsMarked(status, kMemory)) {
    return status;
  }
  // Its words are often those of CUDA ("Cuda failure 'out of memory'"), but it
  // is for the master to say what follows: NCCL may be given up.
  if (collective::IsNcclFailure(status)) return status;
  const absl::string_view text = status.message();
  if (ContainsAny(text, {"out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
                         "CUDNN_STATUS_ALLOC_FAILED"})) {
    return Marked(absl::StatusCode::kResourceExhausted,
                  absl::StrCat("the device has too little memory; a smaller "
                               "--minibatch_size (with --accumulation_steps), "
                               "--precision=bf16 or fewer workers on this GPU "
                               "may help: ",
                               FirstLine(text)),
                  kMemory);
  }
  // What the model asked for is wrong, on every device.
  const bool asked = ContainsAny(
      text, {"CUDNN_STATUS_NOT_SUPPORTED", "CUDNN_STATUS_BAD_PARAM",
             "CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_NOT_SUPPORTED"});
  if (!asked &&
      ContainsAny(text, {"CUDA error", "CUDA driver error", "cuDNN error",
                         "CUDNN_STATUS_", "CUBLAS_STATUS_", "CUSOLVER_STATUS_",
                         "CUSPARSE_STATUS_", "cuFFT error"})) {
    return Marked(status.code(),
                  absl::StrCat("the device failed: ", FirstLine(text),
                               AdviceForFailure(text)),
                  kFailure);
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
  } catch (const c10::Error& error) {
    return Explained(absl::InternalError(
        absl::StrCat(what, ": ", error.what_without_backtrace())));
  } catch (const std::exception& error) {
    return Explained(
        absl::InternalError(absl::StrCat(what, ": ", error.what())));
  }
}

bool IsDeviceFailure(const absl::Status& status) {
  return IsMarked(status, kFailure);
}

bool IsOutOfDeviceMemory(const absl::Status& status) {
  return IsMarked(status, kMemory);
}

absl::Status UseDevice(c10::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return OnDevice(absl::StrCat("using ", device.str()), [&] {
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    return absl::OkStatus();
  });
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
