#include "replica.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "buffer_sync.h"
#include "device.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/elastic/control_word.h"
#include "gradient_clip.h"
#include "large_array.h"

namespace elasticdl::worker {
namespace {

v1::DataType ToDataType(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return v1::DT_FLOAT;
    case torch::kFloat64:
      return v1::DT_DOUBLE;
    case torch::kInt32:
      return v1::DT_INT32;
    case torch::kInt64:
      return v1::DT_INT64;
    case torch::kUInt8:
      return v1::DT_UINT8;
    case torch::kInt8:
      return v1::DT_INT8;
    case torch::kInt16:
      return v1::DT_INT16;
    case torch::kBool:
      return v1::DT_BOOL;
    case torch::kBFloat16:
      return v1::DT_BFLOAT16;
    case torch::kFloat16:
      return v1::DT_HALF;
    default:
      return v1::DT_INVALID;
  }
}

void CopyTensors(const NamedTensors& from, const NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < to.size(); ++i) {
    torch::Tensor target = to[i].second;
    target.copy_(from[i].second);
  }
}

absl::Span<const char> Bytes(const void* data, size_t size) {
  return absl::MakeConstSpan(static_cast<const char*>(data), size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(
    model::Model& model, const model::NetworkOptions& options,
    bool with_optimizer, const Execution& execution) {
  ELASTICDL_ASSIGN_OR_RETURN(auto network, model.CreateNetwork(options));
  // Views below need contiguous tensors; buffers are rarely anything else.
  for (const auto& [name, tensor] : network->buffers()) {
    if (!tensor.is_contiguous() ||
        ToDataType(tensor.scalar_type()) == v1::DT_INVALID) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer '", name, "' of the model is ",
                       tensor.toString(), ", which cannot be saved"));
    }
  }
  std::unique_ptr<Replica> replica(
      new Replica(model, std::move(network), options.seed, execution));
  const auto set_up = [&]() -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(replica->MoveToDevice());
    if (!with_optimizer) return absl::OkStatus();
    if (execution.keep && replica->on_cpu()) {
      auto kept = keep::KeptState::Create();
      if (!kept.ok()) replica->StopKeeping(kept.status());
      if (kept.ok()) replica->kept_ = *std::move(kept);
    }
    ELASTICDL_RETURN_IF_ERROR(replica->SetUpOptimizer());
    replica->MoveToKept();
    return absl::OkStatus();
  };
  ELASTICDL_RETURN_IF_ERROR(OnDevice("setting up the model", set_up));
  ELASTICDL_RETURN_IF_ERROR(OnDevice("making a copy on the host", [&] {
    replica->FillMirror();
    return absl::OkStatus();
  }));
  replica->SealKept();
  return replica;
}

void Replica::FillMirror() {
  for (const auto* tensors : {&network_->parameters(), &network_->buffers()}) {
    for (const auto& [name, tensor] : *tensors) mirror_.Add(tensor);
  }
  for (const torch::Tensor& slot : slots_) mirror_.Add(slot);
}

// Makes the parameters contiguous, too: members on all devices have the same
// bytes then.
absl::Status Replica::MoveToDevice() {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : network_->parameters()) {
    if (parameter.layout() != torch::kStrided) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", name, "' is ", parameter.toString(),
                       ", which cannot be on ", device().str()));
    }
    if (on_cpu() && parameter.is_contiguous()) continue;
    parameter.set_data(parameter.detach().to(device()).contiguous());
  }
  if (!on_cpu()) MoveBuffers(network_->buffers(), device());
  return absl::OkStatus();
}

absl::Status Replica::SetUpOptimizer() {
  // What is sent along with the gradients: the control word, each buffer, and a
  // word about each.
  size_t head = elastic::ControlWordSize(kMaxWorldSize);
  for (const auto& [name, buffer] : network_->buffers()) {
    head += 1 + static_cast<size_t>(buffer.numel());
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      FlatParameters flat,
      FlatParameters::Adopt(network_->parameters(), head,
                            [this](int64_t size) { return NewArray(size); }));
  flat_ = std::make_unique<FlatParameters>(std::move(flat));
  if (flat_->device() != device()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the parameters of the model are on ",
                     flat_->device().str(), ", but the worker computes on ",
                     device().str(), "; a model file need not move them"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(optim::OptimizerSpec spec, model_.Optimizer());
  ELASTICDL_ASSIGN_OR_RETURN(spec, spec.Canonical());
  ELASTICDL_ASSIGN_OR_RETURN(optimizer_, optim::Optimizer::Create(spec));
  optimizer_spec_ = spec.ToString();
  clip_norm_ = GlobalClipNorm(optimizer_spec_);
  const size_t num_slots = optimizer_->slot_names().size();
  for (size_t i = 0; i < num_slots; ++i) {
    slots_.push_back(NewArray(static_cast<int64_t>(flat_->size())));
    slots_[i].fill_(optimizer_->initial_slot_value(i));
    if (on_cpu()) slot_pointers_.push_back(slots_[i].data_ptr<float>());
  }
  return absl::OkStatus();
}

std::vector<checkpoint::NamedTensor> Replica::Variables() const {
  std::vector<checkpoint::NamedTensor> variables;
  for (const auto* tensors : {&network_->parameters(), &network_->buffers()}) {
    for (const auto& [name, tensor] : *tensors) {
      variables.push_back(Variable(name, tensor));
    }
  }
  return variables;
}

checkpoint::NamedTensor Replica::Variable(const std::string& name,
                                          const torch::Tensor& tensor) const {
  checkpoint::NamedTensor variable;
  variable.name = name;
  variable.dtype = ToDataType(tensor.scalar_type());
  variable.shape = tensor.sizes().vec();
  variable.bytes = Bytes(mirror_.Data(tensor), tensor.nbytes());
  return variable;
}

absl::StatusOr<checkpoint::Snapshot> Replica::ViewWithoutSlots() {
  ELASTICDL_RETURN_IF_ERROR(FetchState());
  return Describe();
}

checkpoint::Snapshot Replica::Describe() const {
  checkpoint::Snapshot snapshot;
  snapshot.version = step_;
  snapshot.variables = Variables();
  snapshot.optimizer = optimizer_spec_;
  snapshot.optimizer_step = step_;
  return snapshot;
}

absl::StatusOr<checkpoint::Snapshot> Replica::View() {
  ELASTICDL_ASSIGN_OR_RETURN(checkpoint::Snapshot snapshot, ViewWithoutSlots());
  snapshot.slots = Slots();
  return snapshot;
}

std::vector<checkpoint::NamedTensor> Replica::Slots() const {
  std::vector<checkpoint::NamedTensor> slots;
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const FlatParameters::Slice& slice : flat_->slices()) {
      checkpoint::NamedTensor slot;
      slot.name = checkpoint::SlotName(slice.name, optimizer_->slot_names()[i]);
      slot.shape = slice.shape;
      const size_t bytes = sizeof(float);
      slot.bytes = Bytes(mirror_.Data(slots_[i]) + slice.offset * bytes,
                         slice.size * bytes);
      slots.push_back(std::move(slot));
    }
  }
  if (optimizer_ != nullptr && scales_loss()) {
    checkpoint::NamedTensor slot;
    slot.name = checkpoint::SlotName(kLossScale, "loss_scale");
    slot.shape = {LossScale::kNumbers};
    slot.bytes = loss_scale_.bytes();
    slots.push_back(std::move(slot));
  }
  return slots;
}

absl::Status Replica::FetchState() {
  if (on_cpu()) return absl::OkStatus();
  PutMirrorAside();
  const elastic::Watchdog::Watch watch(watchdog_, "copying from the device");
  return OnDevice("copying the model from the device", [this] {
    mirror_.Fetch();
    return absl::OkStatus();
  });
}

absl::Status Replica::StoreState() {
  if (on_cpu()) return absl::OkStatus();
  const elastic::Watchdog::Watch watch(watchdog_, "copying to the device");
  return OnDevice("copying the model to the device", [this] {
    mirror_.Store();
    return absl::OkStatus();
  });
}

absl::Status Replica::Export(const std::string& dir) {
  if (on_cpu()) return model::ExportTo(dir, *network_);
  // Files for everybody: tensors of a device could be loaded only where there
  // is one.
  model::NetworkOptions options;
  options.seed = seed_;
  options.late_values = true;
  ELASTICDL_ASSIGN_OR_RETURN(const auto copy, model_.CreateNetwork(options));
  ELASTICDL_RETURN_IF_ERROR(OnDevice("copying the model to be exported", [&] {
    const elastic::Watchdog::Watch watch(watchdog_, "copying from the device");
    CopyTensors(network_->parameters(), copy->parameters());
    CopyTensors(network_->buffers(), copy->buffers());
    return absl::OkStatus();
  }));
  return model::ExportTo(dir, *copy);
}

absl::Status Replica::StartAnew() {
  ELASTICDL_ASSIGN_OR_RETURN(const auto fresh, model_.CreateNetwork({seed_}));
  GiveUpLive("the model is reinitialized");
  step_ = 0;
  loss_scale_ = LossScale();
  return OnDevice("going back to the first weights", [&] {
    const torch::NoGradGuard no_grad;
    CopyTensors(fresh->parameters(), network_->parameters());
    CopyTensors(fresh->buffers(), network_->buffers());
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].fill_(optimizer_->initial_slot_value(i));
    }
    return absl::OkStatus();
  });
}

absl::Status Replica::MakeLateValues() {
  const int64_t bytes = network_->LateBytes();
  if (bytes == 0) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(OnDevice(
      "making initial values", [this] { return network_->MakeLateValues(); }));
  LogInfo("made the initial values of ", bytes >> 20, " MB of parameters");
  return absl::OkStatus();
}

std::vector<absl::Span<char>> Replica::State() {
  std::vector<absl::Span<char>> state;
  const auto add = [&](const torch::Tensor& tensor) {
    state.emplace_back(mirror_.Data(tensor), tensor.nbytes());
  };
  add(flat_->value_tensor());
  for (const torch::Tensor& slot : slots_) add(slot);
  for (const auto& [name, buffer] : network_->buffers()) add(buffer);
  // Parameters that are not trained differ only if the model file does, but
  // that may be so (a random projection).
  for (const torch::Tensor& parameter : Untrained()) {
    add(parameter);
  }
  if (scales_loss()) state.push_back(loss_scale_.bytes());
  return state;
}

absl::StatusOr<uint32_t> Replica::StateDigest() {
  ELASTICDL_RETURN_IF_ERROR(FetchState());
  uint32_t digest = 0;
  for (const absl::Span<char>& span : State()) {
    digest = ExtendCrc32c(digest, absl::string_view(span.data(), span.size()));
  }
  return digest;
}

uint64_t Replica::LayoutDigest() const {
  std::string text = optimizer_spec_;
  if (scales_loss()) absl::StrAppend(&text, ";", kLossScale);
  for (const checkpoint::NamedTensor& variable : Variables()) {
    absl::StrAppend(&text, ";", variable.name, ":", variable.dtype, ":",
                    absl::StrJoin(variable.shape, "x"));
  }
  return Fnv1a(text);
}

}  // namespace elasticdl::worker
