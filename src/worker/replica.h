// One worker's copy of what is trained: network, flat parameters, optimizer and
// its state, step. The trainer decides what happens to the gradients between
// AddGradients and ApplyGradients.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/optim.h"
#include "elasticdl/trace/step_clock.h"
#include "flat_parameters.h"

namespace elasticdl::worker {

// Runs on the training thread.
class Replica {
 public:
  // `model` must outlive the replica. `with_optimizer` false: for evaluation
  // and prediction, where a model file needs no optimizer. With
  // `sharded_embeddings`, rows of embeddings come from SetRowSource.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(
      model::Model& model, const model::NetworkOptions& options,
      bool with_optimizer);

  // Must be set before anything is computed with sharded embeddings, and
  // outlive the replica.
  void SetRowSource(RowSource* source) { network_->SetRowSource(source); }

  // Forward and backward: adds `scale` times the gradients of this batch's mean
  // loss to the flat gradients. Returns the loss. ABORTED when the loss is not
  // finite.
  absl::StatusOr<double> AddGradients(const Batch& batch, double scale);
  // One update with the flat gradients; step() grows by one.
  void ApplyGradients(double learning_rate);

  // Output of the network in evaluation mode, without gradients.
  absl::StatusOr<Outputs> Predict(const Features& features);

  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_->learning_rate(); }
  // As text, with all its numbers.
  const std::string& optimizer_spec() const { return optimizer_spec_; }
  // Norm to which gradients are clipped; 0 = they are not.
  double clip_norm() const { return clip_norm_; }
  FlatParameters& parameters() { return *flat_; }
  const model::Network& network() const { return *network_; }

  // Of the optimizer's state, in its order: names, and arrays that are laid out
  // like the flat parameters.
  const std::vector<std::string>& slot_names() const {
    return optimizer_->slot_names();
  }
  std::vector<const float*> slots() const {
    return {slot_pointers_.begin(), slot_pointers_.end()};
  }

  // A view of the state, valid until the next update. Without a ledger.
  checkpoint::Snapshot View() const;
  // The optimizer's state is elsewhere.
  checkpoint::Snapshot ViewWithoutSlots() const;
  // Takes over variables, optimizer state (when it is of the same optimizer;
  // else it starts anew, with a warning) and step. Tables are converted in
  // `loaded` if they are of another strategy (table_fit.h); rows that live on
  // servers are not taken over. FAILED_PRECONDITION for a checkpoint of another
  // model.
  absl::Status Restore(checkpoint::Loaded& loaded);

  // Back to the weights that Create made, step 0.
  absl::Status StartAnew();
  // All that members of a world must have in common, apart from the step.
  std::vector<absl::Span<char>> State();
  // Same for replicas whose State() means the same.
  uint64_t LayoutDigest() const;
  // Of the bytes of State().
  uint32_t StateDigest();
  // After the bytes of State() were replaced.
  void SetStep(int64_t step) { step_ = step; }
  const NamedTensors& buffers() const { return network_->buffers(); }
  // Where the time of the training thread goes.
  trace::StepClock& step_clock() { return step_clock_; }

 private:
  Replica(model::Model& model, std::unique_ptr<model::Network> network,
          uint64_t seed)
      : model_(model), network_(std::move(network)), seed_(seed) {}
  absl::Status SetUpOptimizer();
  absl::Status FitTables(checkpoint::Loaded& loaded) const;
  void RestoreSlots(const checkpoint::Loaded& loaded);
  void SetTraining(bool training);
  std::vector<checkpoint::NamedTensor> Variables() const;

  model::Model& model_;
  const std::unique_ptr<model::Network> network_;
  const uint64_t seed_;
  // Set when there is an optimizer.
  std::unique_ptr<FlatParameters> flat_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::string optimizer_spec_;
  double clip_norm_ = 0;
  std::vector<std::vector<float>> slots_;
  std::vector<float*> slot_pointers_;
  // Nothing: a new network is in whatever mode its maker left it.
  std::optional<bool> training_;
  int64_t step_ = 0;
  trace::StepClock step_clock_;
};

}  // namespace elasticdl::worker
