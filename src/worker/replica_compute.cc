// What a replica computes: gradients, updates, outputs.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device.h"
#include "device_optimizer.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "gradient_clip.h"
#include "replica.h"

namespace elasticdl::worker {
namespace {

// Autocast leaves outputs in the type of the last layer.
Outputs InFloats(const Outputs& outputs, Precision precision) {
  if (precision == Precision::kFloat32) return outputs;
  elasticdl::NamedTensors floats;
  for (const auto& [name, tensor] : outputs.items()) {
    const bool is_half = tensor.scalar_type() == torch::kBFloat16 ||
                         tensor.scalar_type() == torch::kFloat16;
    floats.Add(name, is_half ? tensor.to(torch::kFloat32) : tensor);
  }
  return floats;
}

}  // namespace

void Replica::SetTraining(bool training) {
  // Walking the modules on every step would cost more than a small layer.
  if (training == training_) return;
  training_ = training;
  if (training) {
    network_->Train();
  } else {
    network_->Eval();
  }
}

absl::StatusOr<torch::Tensor> Replica::Loss(const Batch& batch) {
  SetTraining(true);
  step_clock_.Enter(trace::Kind::kForward);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.forward"));
  std::optional<Batch> moved;
  if (!on_cpu()) moved = ToDevice(batch, device());
  const Batch& here = moved.has_value() ? *moved : batch;
  const Autocast autocast(device(), execution_.precision);
  ELASTICDL_ASSIGN_OR_RETURN(const Outputs outputs,
                             network_->Forward(here.features));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.backward"));
  ELASTICDL_ASSIGN_OR_RETURN(torch::Tensor loss,
                             model_.Loss(here.labels, outputs));
  if (loss.numel() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss must return one number, not ", loss.numel()));
  }
  return loss;
}

absl::Status Replica::Backward(const torch::Tensor& loss, double scale) {
  step_clock_.Enter(trace::Kind::kBackward);
  try {
    if (scale == 1) {
      loss.backward();
    } else {
      // A scaled loss may be too large for a smaller type.
      (loss.to(torch::kFloat32) * scale).backward();
    }
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("backward: ", error.what()));
  }
  flat_->CollectGradients();
  return absl::OkStatus();
}

absl::Status LossError(double loss, int64_t step) {
  return absl::AbortedError(absl::StrCat("the loss is ", loss, " at step ",
                                         step,
                                         "; a smaller learning rate may help"));
}

absl::StatusOr<double> Replica::AddGradients(const Batch& batch, double scale) {
  double value = 0;
  const auto add = [&]() -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(const torch::Tensor loss, Loss(batch));
    value = loss.item<double>();
    if (!std::isfinite(value)) return LossError(value, step_ + 1);
    return Backward(loss, scale);
  };
  ELASTICDL_RETURN_IF_ERROR(on_cpu() ? add() : OnDevice("a step", add));
  return value;
}

absl::StatusOr<torch::Tensor> Replica::EnqueueGradients(const Batch& batch,
                                                        double scale) {
  torch::Tensor loss;
  const auto add = [&]() -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(loss, Loss(batch));
    return Backward(loss, scale);
  };
  ELASTICDL_RETURN_IF_ERROR(OnDevice("a step", add));
  return loss.detach();
}

void Replica::ApplyGradients(double learning_rate) {
  const trace::ScopedKind timed(step_clock_, trace::Kind::kOptimizer);
  if (!on_cpu()) {
    const torch::Tensor gradients = flat_->gradient_tensor();
    if (clip_norm_ > 0) ClipTensorByNorm(clip_norm_, gradients);
    ApplyWithTensors(*optimizer_, flat_->value_tensor(), gradients, slots_,
                     learning_rate, step_ + 1);
    // Only now: there may be no memory for it.
    ++step_;
    return;
  }
  ++step_;
  if (clip_norm_ > 0) {
    const absl::Span<float> gradients(flat_->gradients(), flat_->size());
    ClipByGlobalNorm(clip_norm_, {gradients});
  }
  // From here on the gradients do not change.
  if (kept_ != nullptr) kept_->BeginUpdate();
  if (part_.has_value()) return ApplyToPart(learning_rate);
  if (!live_.empty()) return ApplyLive(learning_rate);
  ApplyTo(0, flat_->size(), learning_rate);
}

// Optimizers work element by element, and the arithmetic is the same wherever
// an array is split: the bits do not depend on the ranges.
void Replica::ApplyFrom(const float* gradients, size_t begin, size_t end,
                        double learning_rate, const optim::UndoLog* log) {
  std::vector<float*> slots;
  slots.reserve(slot_pointers_.size());
  for (float* slot : slot_pointers_) slots.push_back(slot + begin);
  const optim::Update update = {flat_->values() + begin, gradients + begin,
                                slots.data(), end - begin, log};
  optimizer_->ApplyAll(absl::MakeConstSpan(&update, 1), learning_rate, step_);
}

absl::StatusOr<Outputs> Replica::Predict(const Features& features) {
  SetTraining(false);
  torch::NoGradGuard no_grad;
  const Autocast autocast(device(), execution_.precision);
  Outputs outputs;
  const auto predict = [&]() -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(
        const Outputs made,
        network_->Forward(on_cpu() ? features : Moved(features, device())));
    outputs = InFloats(on_cpu() ? made : Moved(made, c10::Device(c10::kCPU)),
                       execution_.precision);
    return absl::OkStatus();
  };
  ELASTICDL_RETURN_IF_ERROR(OnDevice("computing outputs", predict));
  return outputs;
}

}  // namespace elasticdl::worker
