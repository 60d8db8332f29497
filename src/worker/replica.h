// One worker's copy of what is trained: network, flat parameters, optimizer and
// its state, step. The trainer decides what happens to the gradients between
// AddGradients and ApplyGradients.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "autocast.h"
#include "elasticdl/checkpoint/live_arrays.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/elastic/state_stream.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/keep/kept_reader.h"
#include "elasticdl/keep/kept_state.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/optim.h"
#include "elasticdl/trace/step_clock.h"
#include "flat_parameters.h"
#include "host_mirror.h"
#include "loss_scale.h"

namespace elasticdl::worker {

// The error for a loss that is not finite.
absl::Status LossError(double loss, int64_t step);

// Where and how a replica computes.
struct Execution {
  c10::Device device = c10::Device(c10::kCPU);
  // Of forward and loss.
  Precision precision = Precision::kFloat32;
  // On the CPU, with an optimizer: the state is in memory that others can keep.
  bool keep = false;
};

// Runs on the training thread.
class Replica {
 public:
  // `model` must outlive the replica. `with_optimizer` false: for evaluation
  // and prediction, where a model file needs no optimizer. With
  // `sharded_embeddings`, rows of embeddings come from SetRowSource.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(
      model::Model& model, const model::NetworkOptions& options,
      bool with_optimizer, const Execution& execution = {});

  // Must be set before anything is computed with sharded embeddings, and
  // outlive the replica.
  void SetRowSource(RowSource* source) { network_->SetRowSource(source); }

  // Forward and backward: adds `scale` times the gradients of this batch's mean
  // loss to the flat gradients. Returns the loss. ABORTED when the loss is not
  // finite.
  absl::StatusOr<double> AddGradients(const Batch& batch, double scale);
  // The same without a wait for the device: the loss is a tensor there, and not
  // checked.
  absl::StatusOr<torch::Tensor> EnqueueGradients(const Batch& batch,
                                                 double scale);
  // One update with the flat gradients; step() grows by one. The step is
  // complete with EndStep, when the buffers are those of the step, too.
  void ApplyGradients(double learning_rate);
  void EndStep();

  // Under fp16 the loss is multiplied by this before backward. Whoever
  // multiplies it sets what the step ends with, before ApplyGradients.
  bool scales_loss() const {
    return execution_.precision == Precision::kFloat16;
  }
  const LossScale& loss_scale() const { return loss_scale_; }
  void SetLossScale(const LossScale& scale) { loss_scale_ = scale; }

  // Output of the network in evaluation mode, without gradients; on the CPU,
  // and never in a type smaller than float.
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
  // On the CPU only.
  std::vector<const float*> slots() const {
    return {slot_pointers_.begin(), slot_pointers_.end()};
  }

  c10::Device device() const { return execution_.device; }
  bool on_cpu() const { return device().is_cpu(); }

  // A view of the state, valid until the next update. Without a ledger. Waits
  // for a device.
  absl::StatusOr<checkpoint::Snapshot> View();
  // The optimizer's state is elsewhere.
  absl::StatusOr<checkpoint::Snapshot> ViewWithoutSlots();
  // The same, to be saved while training continues (replica_live.cc): only the
  // buffers are copied, on a device all of it, to the mirror. If CanViewLive.
  // Any change of what is read, the state or the mirror, first puts aside the
  // slices that were not read yet, or drops the snapshot.
  struct LiveView {
    checkpoint::OwnedSnapshot snapshot;
    std::shared_ptr<checkpoint::LiveArrays> arrays;
  };
  absl::StatusOr<LiveView> ViewLive(const checkpoint::LiveOptions& options);
  // The scale of the loss is in no array.
  bool CanViewLive() const { return optimizer_ != nullptr && !scales_loss(); }
  // Something replaces the state. It is not kept any more, either.
  void GiveUpLive(const std::string& reason);
  // Of parameters, optimizer state and buffers.
  int64_t StateBytes();

  // ---- restoring a checkpoint: replica_restore.cc ----
  // Takes over variables, optimizer state (when it is of the same optimizer;
  // else, or where the checkpoint has none, it starts anew, with a warning) and
  // step. Tables are converted in
  // `loaded` if they are of another strategy (table_fit.h); rows that live on
  // servers are not taken over. FAILED_PRECONDITION for a checkpoint of another
  // model.
  absl::Status Restore(checkpoint::Loaded& loaded);
  // For LoadOptions::place, before Restore: tensors are read straight to where
  // the model has them. From here on the state is nobody's until Restore or
  // StartAnew succeeds, or another member's replaces it.
  absl::Status PlaceCheckpoint(checkpoint::Loaded& loaded);

  // Back to the weights that Create made, step 0.
  absl::Status StartAnew();
  // Create left out initial values (NetworkOptions::late_values): all of the
  // state must be replaced, or they must be made, before it counts.
  bool lacks_values() const { return network_->LateBytes() > 0; }
  absl::Status MakeLateValues();
  // Everything that members of a world must have in common, except the step, as
  // bytes in host memory. On a device they are valid after FetchState, and
  // changes take effect with StoreState; on the CPU these do nothing.
  std::vector<absl::Span<char>> State();
  absl::Status FetchState();
  absl::Status StoreState();
  // Same for replicas whose State() means the same.
  uint64_t LayoutDigest() const;
  // Of the bytes of State().
  absl::StatusOr<uint32_t> StateDigest();
  // After the bytes of State() were replaced.
  void SetStep(int64_t step) { step_ = step; }
  const NamedTensors& buffers() const { return network_->buffers(); }
  // Sees to it that the device answers; null = nobody. Must outlive the
  // replica.
  void SetWatchdog(elastic::Watchdog* watchdog) { watchdog_ = watchdog; }
  // Where the time of the training thread goes.
  trace::StepClock& step_clock() { return step_clock_; }

  // ---- the state in memory that outlives the process: replica_kept.cc ----
  // Null: it is not. Whoever trains says what is to be known of each step.
  keep::KeptState* kept() { return kept_.get(); }
  // Where the values that a buffer had after the last step are remembered.
  torch::Tensor RememberBuffer(const torch::Tensor& buffer) const;
  // Takes over what a dead process has left, and finishes its last update.
  // FAILED_PRECONDITION: it is of another model; nothing has changed.
  absl::Status RestoreKept(const keep::KeptReader& reader);

  // ---- the state in pieces: replica_stream.cc ----
  // The ring has so many units; where these are; the rest of State().
  size_t NumUnits() const;
  std::vector<absl::Span<char>> Units(const elastic::StateStream::Range& range);
  std::vector<absl::Span<char>> BufferBytes();
  // From now on only this part of the ring is the model's, and updated;
  // nothing: all of it.
  void SetPart(std::optional<elastic::StateStream::Part> part);
  const std::optional<elastic::StateStream::Part>& part() const {
    return part_;
  }

  // Writes the model for torch::load, as tensors of the CPU (model::ExportTo).
  absl::Status Export(const std::string& dir);

 private:
  Replica(model::Model& model, std::unique_ptr<model::Network> network,
          uint64_t seed, const Execution& execution)
      : model_(model),
        network_(std::move(network)),
        seed_(seed),
        execution_(execution) {}
  // The optimizer's state has no parameter of this name: names of parameters
  // that PyTorch knows have no brackets.
  static constexpr char kLossScale[] = "[fp16]";

  absl::Status MoveToDevice();
  void FillMirror();
  // Replica::kept.
  torch::Tensor NewArray(int64_t floats);
  void MoveToKept();
  void SealKept();
  void StopKeeping(const absl::Status& why);
  struct Packed;
  Packed PackedBuffers() const;
  Packed PackedUntrained() const;
  absl::Status CheckKept(const keep::KeptReader& reader) const;
  absl::Status SetUpOptimizer();
  // The loss of a batch, which is moved to the device if it is not there.
  absl::StatusOr<torch::Tensor> Loss(const Batch& batch);
  absl::Status Backward(const torch::Tensor& loss, double scale);
  absl::Status FitTables(checkpoint::Loaded& loaded) const;
  void RestoreSlots(const checkpoint::Loaded& loaded);
  // Where the slot of a parameter is, in the mirror.
  absl::Span<char> SlotBytes(size_t slot,
                             const FlatParameters::Slice& slice) const;
  void RestoreLossScale(const checkpoint::Loaded& loaded);
  void SetTraining(bool training);
  // Of the mirror.
  std::vector<checkpoint::NamedTensor> Variables() const;
  std::vector<torch::Tensor> Untrained() const;
  void ApplyToPart(double learning_rate);
  // Updates [begin, end) of the flat arrays.
  void ApplyTo(size_t begin, size_t end, double learning_rate);
  // The same with gradients that are elsewhere; `gradients` is of the whole.
  void ApplyFrom(const float* gradients, size_t begin, size_t end,
                 double learning_rate, const optim::UndoLog* log = nullptr);
  size_t UndoBytes() const;
  // With snapshots that are being read.
  void ApplyLive(double learning_rate);
  void ForgetFinished();
  // The mirror is about to change.
  void PutMirrorAside();
  checkpoint::NamedTensor Variable(const std::string& name,
                                   const torch::Tensor& tensor) const;
  std::vector<checkpoint::NamedTensor> Slots() const;
  checkpoint::Snapshot Describe() const;

  model::Model& model_;
  const std::unique_ptr<model::Network> network_;
  const uint64_t seed_;
  const Execution execution_;
  // The tensors that are in it are the other owners.
  std::shared_ptr<keep::KeptState> kept_;
  // There: the buffers, and what is remembered of them.
  char* kept_buffers_ = nullptr;
  char* kept_committed_ = nullptr;
  // Of all tensors that State or a checkpoint has.
  HostMirror mirror_;
  // Set when there is an optimizer.
  std::unique_ptr<FlatParameters> flat_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::string optimizer_spec_;
  double clip_norm_ = 0;
  std::vector<torch::Tensor> slots_;
  // On the CPU.
  std::vector<float*> slot_pointers_;
  // Nothing: a new network is in whatever mode its maker left it.
  std::optional<bool> training_;
  int64_t step_ = 0;
  // The mirror holds what Restore keeps.
  bool placed_ = false;
  // Used if scales_loss().
  LossScale loss_scale_;
  trace::StepClock step_clock_;
  elastic::Watchdog* watchdog_ = nullptr;
  std::optional<elastic::StateStream::Part> part_;
  // Snapshots that may still be read. Their readers are the other owners.
  std::vector<std::shared_ptr<checkpoint::LiveArrays>> live_;
};

}  // namespace elasticdl::worker
