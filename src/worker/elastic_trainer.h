// One step of training as a member of a world (which may have only one member):
// gradients of this worker's minibatches, the sum over all members, the update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "buffer_sync.h"
#include "device_stream.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/elastic/control_word.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/model/types.h"
#include "gradient_reducer.h"
#include "replica.h"

namespace elasticdl::worker {

// The result of a round.
struct Round {
  // Not OK: the world is broken. The model is as it was, the minibatches are
  // not used.
  absl::Status world;
  elastic::RoundSummary summary;
  // Somebody had data: the model was updated.
  bool stepped = false;
  // The sum of the gradients is not finite: nothing was updated, the
  // minibatches are not used.
  bool overflow = false;
};

// A minibatch with its weight.
struct WeightedBatch {
  const Batch* batch = nullptr;
  int64_t records = 0;
};

// Runs on the training thread.
class ElasticTrainer {
 public:
  // `replica` and `watchdog` (if any) must outlive the trainer.
  // `device_timeout`: of a sum by a DeviceCommunicator.
  ElasticTrainer(Replica& replica, GradientCompression compression,
                 elastic::Watchdog* watchdog = nullptr,
                 absl::Duration device_timeout = kReduceTimeout);

  // From now on rounds are with the members of this world, who are level.
  // `usual_records`: what a step has as a rule (the same on all members).
  void EnterWorld(std::shared_ptr<collective::Communicator> communicator,
                  int64_t usual_records);
  void LeaveWorld() { communicator_.reset(); }
  // The gradients of a round that failed because of others are kept: the next
  // round that has the same minibatches, or these and more, need not compute
  // them again. To be called when the model or the minibatches are no longer
  // those of that round.
  void ForgetGradients() { kept_.reset(); }
  // No round comes after the one that runs: if it fails, its gradients need not
  // be complete. Any thread.
  void ExpectNoMoreRounds() { reducer_.ExpectNoMoreRounds(); }
  bool keeps_gradients() const { return kept_.has_value(); }
  // Of the current world; null = none.
  collective::Communicator* communicator() { return communicator_.get(); }

  // Collective. `word` has this member's flags; its records and loss are filled
  // in. An error is either the user's (the model throws, the loss is not
  // finite), and the job cannot continue, or the device's (IsDeviceFailure),
  // and this worker cannot continue. The round is void.
  absl::StatusOr<Round> Run(const std::vector<WeightedBatch>& batches,
                            elastic::MemberWord word, double learning_rate);

  // Called when this member has its gradients, before the others'.
  std::function<void()> computed = [] {};

  // Called when the sums of a step are there, before the model is updated.
  std::function<void(const elastic::RoundSummary& summary,
                     double learning_rate)>
      before_update = [](const elastic::RoundSummary&, double) {};

  // One forward and backward without consequences, so that the first step takes
  // no longer than the others.
  absl::Status WarmUp(const Batch& batch);

  // The values of the buffers were replaced from outside.
  absl::Status AcceptBuffers();

 private:
  // Of these minibatches: computes them, or takes those that are kept.
  absl::Status MakeGradients(const std::vector<WeightedBatch>& batches,
                             elastic::MemberWord& word);
  // Of the minibatches from `first` on.
  absl::Status AddGradients(const std::vector<WeightedBatch>& batches,
                            size_t first, elastic::MemberWord& word);
  // The sum has failed: back to the model as it was before the round.
  void EndFailedRound(const std::vector<WeightedBatch>& batches,
                      const elastic::MemberWord& word);
  absl::Status Reduce(const elastic::MemberWord& word,
                      elastic::RoundSummary& summary);
  absl::Status ReduceOnDevice(const elastic::MemberWord& word,
                              elastic::RoundSummary& summary);
  // Puts this member's control word and buffers in front of its gradients.
  void EnqueueHead(const elastic::MemberWord& word,
                   const torch::Tensor& control,
                   const torch::Tensor& statistics);
  // Waits for what this member itself has to compute, as long as the watchdog
  // allows: other members are not to blame for it.
  void AwaitOwnWork();
  // Copies the control word from the device. `shared`: it comes after sums of
  // the communicator.
  absl::Status ReadWord(const torch::Tensor& control, bool shared);
  // From the summed control word.
  float OwnLossSum();
  void Scale(double factor);
  absl::StatusOr<Round> RunRound(const std::vector<WeightedBatch>& batches,
                                 elastic::MemberWord word,
                                 double learning_rate);
  // Rounds with an ever smaller scale of the loss, until none overflows.
  absl::StatusOr<Round> RunScaled(const std::vector<WeightedBatch>& batches,
                                  const elastic::MemberWord& word,
                                  double learning_rate);
  // Later work of this thread's stream: copies to the host whether the sum of
  // the gradients is finite. To be followed by ReadWord.
  void EnqueueCheck();

  // What a replica on a device needs in addition.
  struct DeviceParts {
    explicit DeviceParts(c10::Device device);
    // Pinned: the control word on its way there and back. Two, because a copy
    // of a round that failed may come late.
    torch::Tensor outgoing;
    torch::Tensor incoming;
    // Pinned: the largest gradient, with fp16.
    torch::Tensor largest;
    // Loss times records of this step, known to the device only.
    torch::Tensor loss_sum;
    StreamEvent read;
    // The gradients of this member are there; and a stream to wait for that
    // alone.
    StreamEvent computed;
    c10::Stream waiting;
  };

  Replica& replica_;
  BufferSync buffers_;
  GradientReducer reducer_;
  elastic::Watchdog* const watchdog_;
  const absl::Duration device_timeout_;
  std::unique_ptr<DeviceParts> device_;
  std::shared_ptr<collective::Communicator> communicator_;
  // Rounds that were begun in this world.
  int64_t rounds_ = 0;
  // Gradients go into the sum divided by this, the number of records of the
  // step before. As a rule it is also this step's, and the sum is the mean.
  int64_t usual_records_ = 1;
  // Gradients that are in the replica's array, of minibatches that are in no
  // step yet.
  struct KeptGradients {
    std::vector<const Batch*> batches;
    int64_t records;
    float loss_sum;
    int64_t usual_records;
  };
  // This step was given up between two of its minibatches.
  bool gave_up_ = false;
  std::optional<KeptGradients> kept_;
  // Of the attempt at hand; the replica's is that of the last step.
  LossScale loss_scale_;
};

}  // namespace elasticdl::worker
