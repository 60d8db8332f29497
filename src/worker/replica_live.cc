// Snapshots of a replica that are written while it is trained
// (docs/design/0013-save-without-a-pause.md).
#include <algorithm>
#include <memory>
#include <utility>

#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"
#include "replica.h"

namespace elasticdl::worker {

absl::StatusOr<Replica::LiveView> Replica::ViewLive(
    const checkpoint::LiveOptions& options) {
  ELASTICDL_CHECK(CanViewLive());
  ELASTICDL_RETURN_IF_ERROR(FetchState());
  checkpoint::Snapshot view;
  view.version = view.optimizer_step = step_;
  view.optimizer = optimizer_spec_;
  // They change during a step; they are small.
  for (const auto& [name, buffer] : network_->buffers()) {
    view.variables.push_back(Variable(name, buffer));
  }
  LiveView live;
  live.snapshot = checkpoint::OwnedSnapshot::Copy(view);
  checkpoint::Snapshot& snapshot = live.snapshot.snapshot;
  // Trained parameters first, in the order of the arrays.
  std::vector<checkpoint::NamedTensor> variables;
  variables.reserve(flat_->slices().size());
  for (size_t i = 0; i < flat_->slices().size(); ++i) {
    variables.push_back(Variable(flat_->slices()[i].name, flat_->tensors()[i]));
  }
  for (const auto& [name, parameter] : network_->parameters()) {
    if (parameter.requires_grad()) continue;
    variables.push_back(Variable(name, parameter));
  }
  variables.insert(variables.end(), snapshot.variables.begin(),
                   snapshot.variables.end());
  snapshot.variables = std::move(variables);
  snapshot.slots = Slots();
  snapshot.num_slot_runs = std::max<size_t>(1, slots_.size());
  const size_t bytes = flat_->size() * sizeof(float);
  std::vector<absl::Span<const char>> arrays;
  arrays.emplace_back(mirror_.Data(flat_->value_tensor()), bytes);
  for (const torch::Tensor& slot : slots_) {
    arrays.emplace_back(mirror_.Data(slot), bytes);
  }
  live.arrays =
      std::make_shared<checkpoint::LiveArrays>(std::move(arrays), options);
  snapshot.live = std::make_shared<checkpoint::LiveReader>(live.arrays);
  live_.push_back(live.arrays);
  return live;
}

void Replica::GiveUpLive(const std::string& reason) {
  for (const auto& arrays : live_) arrays->GiveUp(reason);
  live_.clear();
  if (kept_ != nullptr) kept_->Forget();
}

int64_t Replica::StateBytes() {
  int64_t bytes = 0;
  for (const absl::Span<char>& span : State()) {
    bytes += static_cast<int64_t>(span.size());
  }
  return bytes;
}

void Replica::ForgetFinished() {
  live_.erase(
      std::remove_if(live_.begin(), live_.end(),
                     [](const auto& arrays) { return arrays->finished(); }),
      live_.end());
}

void Replica::PutMirrorAside() {
  ForgetFinished();
  if (live_.empty()) return;
  const trace::ScopedKind timed(step_clock_, trace::Kind::kCheckpointCopy);
  for (const auto& arrays : live_) {
    for (size_t i = 0; i < arrays->num_slices(); ++i) arrays->BeforeChange(i);
  }
}

void Replica::ApplyLive(double learning_rate) {
  ForgetFinished();
  if (live_.empty()) return ApplyTo(0, flat_->size(), learning_rate);
  // All have the same slices.
  const checkpoint::LiveArrays& first = *live_[0];
  for (size_t i = 0; i < first.num_slices(); ++i) {
    {
      const trace::ScopedKind timed(step_clock_, trace::Kind::kCheckpointCopy);
      for (const auto& arrays : live_) arrays->BeforeChange(i);
    }
    ApplyTo(first.begin(i) / sizeof(float), first.end(i) / sizeof(float),
            learning_rate);
  }
}

}  // namespace elasticdl::worker
