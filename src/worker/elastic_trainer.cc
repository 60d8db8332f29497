#include "elastic_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

ElasticTrainer::ElasticTrainer(Replica& replica,
                               GradientCompression compression,
                               elastic::Watchdog* watchdog,
                               absl::Duration device_timeout)
    : replica_(replica),
      buffers_(replica.buffers(),
               [&replica](const torch::Tensor& buffer) {
                 return replica.RememberBuffer(buffer);
               }),
      reducer_(replica.parameters(), compression, device_timeout),
      watchdog_(watchdog),
      device_timeout_(device_timeout) {
  if (!replica.on_cpu()) {
    device_ = std::make_unique<DeviceParts>(replica.device());
  }
}

ElasticTrainer::DeviceParts::DeviceParts(c10::Device device)
    : read(device), computed(device), waiting(SideStream(device)) {
  const auto size =
      static_cast<int64_t>(elastic::ControlWordSize(kMaxWorldSize));
  const auto pinned = torch::TensorOptions(torch::kFloat32).pinned_memory(true);
  outgoing = torch::zeros({size}, pinned);
  incoming = torch::zeros({size}, pinned);
  largest = torch::zeros({1}, pinned);
  loss_sum =
      torch::zeros({1}, torch::TensorOptions(torch::kFloat32).device(device));
}

void ElasticTrainer::EnterWorld(
    std::shared_ptr<collective::Communicator> communicator,
    int64_t usual_records) {
  communicator_ = std::move(communicator);
  usual_records_ = usual_records;
  rounds_ = 0;
  reducer_.SetRecorder(replica_.step_clock().recorder());
}

absl::StatusOr<Round> ElasticTrainer::Run(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord word,
    double learning_rate) {
  if (device_ == nullptr) return RunRound(batches, word, learning_rate);
  absl::StatusOr<Round> round;
  ELASTICDL_RETURN_IF_ERROR(OnDevice("a step on the device", [&] {
    round = RunScaled(batches, word, learning_rate);
    return round.status();
  }));
  // A device that fails in a sum breaks this member, not the world.
  if (IsDeviceFailure(round->world) || IsOutOfDeviceMemory(round->world)) {
    return round->world;
  }
  return round;
}

absl::StatusOr<Round> ElasticTrainer::RunScaled(
    const std::vector<WeightedBatch>& batches, const elastic::MemberWord& word,
    double learning_rate) {
  loss_scale_ = replica_.loss_scale();
  for (;;) {
    const float scale = loss_scale_.value();
    auto round = RunRound(batches, word, learning_rate);
    if (!round.ok() || !round->overflow) return round;
    if (!loss_scale_.Shrink()) {
      return absl::AbortedError(absl::StrCat(
          "the gradients are not finite at step ", replica_.step() + 1,
          ", whatever the loss is scaled by; a smaller learning rate or "
          "--precision=bf16 may help"));
    }
    LogInfo("step ", replica_.step() + 1,
            ": gradients overflow with loss scale ", scale, "; again with ",
            loss_scale_.value());
  }
}

absl::StatusOr<Round> ElasticTrainer::RunRound(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord word,
    double learning_rate) {
  Round round;
  word.round = ++rounds_;
  absl::Status mine = MakeGradients(batches, word);
  if (mine.ok()) {
    mine = elastic::CheckControlWord(word, communicator_->size());
  }
  if (!mine.ok()) {
    round.world = reducer_.Cancel();
    buffers_.RollBack();
    if (std::exchange(gave_up_, false)) {
      communicator_->Abort("this member was told to stop");
      round.world = mine;
    }
    // The others are the reason, not this member's model.
    if (!round.world.ok()) return round;
    return mine;
  }
  computed();
  replica_.step_clock().Enter(trace::Kind::kCommunication);
  round.world = OnDevice("summing gradients", [&] {
    return device_ == nullptr ? Reduce(word, round.summary)
                              : ReduceOnDevice(word, round.summary);
  });
  replica_.step_clock().Enter(trace::Kind::kOther);
  if (!round.world.ok()) {
    EndFailedRound(batches, word);
    return round;
  }
  // Members on a device have not looked at their losses before. All members
  // see the same sum, so none of them takes the step.
  if (!std::isfinite(round.summary.mean_loss)) {
    buffers_.RollBack();
    const float mine = OwnLossSum();
    if (!std::isfinite(mine)) return LossError(mine, replica_.step() + 1);
    round.world = absl::AbortedError("the loss of another member is no number");
    return round;
  }
  const int64_t records = round.summary.total_records;
  if (records == 0) return round;
  if (replica_.scales_loss() &&
      !std::isfinite(*device_->largest.data_ptr<float>())) {
    buffers_.RollBack();
    round.overflow = true;
    return round;
  }
  const elastic::Watchdog::Watch watch(watchdog_, "updating the model",
                                       replica_.step() + 1);
  // Gradients were divided by the usual number before the real one was known.
  double factor = 1;
  if (records != usual_records_) {
    factor = static_cast<double>(usual_records_) / static_cast<double>(records);
  }
  if (replica_.scales_loss()) factor /= loss_scale_.value();
  if (factor != 1) Scale(factor);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.apply"));
  if (replica_.scales_loss()) {
    loss_scale_.OnStep();
    replica_.SetLossScale(loss_scale_);
  }
  before_update(round.summary, learning_rate);
  replica_.ApplyGradients(learning_rate);
  buffers_.Commit();
  replica_.EndStep();
  usual_records_ = records;
  round.stepped = true;
  return round;
}

absl::Status ElasticTrainer::MakeGradients(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord& word) {
  const std::optional<KeptGradients> kept = std::exchange(kept_, std::nullopt);
  const auto same = [](const Batch* mine, const WeightedBatch& batch) {
    return mine == batch.batch;
  };
  // A smaller world may give this member more minibatches, after those.
  if (!kept.has_value() || kept->batches.size() > batches.size() ||
      !std::equal(kept->batches.begin(), kept->batches.end(), batches.begin(),
                  same)) {
    replica_.parameters().ZeroGradients();
    return AddGradients(batches, 0, word);
  }
  buffers_.Recall();
  word.records = kept->records;
  word.loss_sum = kept->loss_sum;
  // They were divided by what was usual in the world that broke.
  if (kept->usual_records != usual_records_) {
    Scale(static_cast<double>(kept->usual_records) /
          static_cast<double>(usual_records_));
  }
  return AddGradients(batches, kept->batches.size(), word);
}

void ElasticTrainer::EndFailedRound(const std::vector<WeightedBatch>& batches,
                                    const elastic::MemberWord& word) {
  // Nobody else was there whose fault it could have been, or the sum of it.
  const bool alone = communicator_->size() == 1;
  if (batches.empty() || alone || !reducer_.intact()) {
    return buffers_.RollBack();
  }
  buffers_.SetAside();
  std::vector<const Batch*> used;
  used.reserve(batches.size());
  for (const WeightedBatch& batch : batches) used.push_back(batch.batch);
  kept_ = KeptGradients{std::move(used), word.records, word.loss_sum,
                        usual_records_};
}

absl::Status ElasticTrainer::AddGradients(
    const std::vector<WeightedBatch>& batches, size_t first,
    elastic::MemberWord& word) {
  const elastic::Watchdog::Watch watch(watchdog_, "forward and backward",
                                       replica_.step() + 1);
  if (device_ != nullptr) device_->loss_sum.zero_();
  for (size_t i = first; i < batches.size(); ++i) {
    // Nobody would use them, and the time until this process is killed may be
    // running. The backward pass of the last one is given up by the reducer.
    if (i > first && communicator_->size() > 1 &&
        reducer_.expects_no_more_rounds()) {
      gave_up_ = true;
      return absl::AbortedError("no round follows; minibatches are left out");
    }
    const auto records = static_cast<double>(batches[i].records);
    // Gradients add up over the batches, so only those of the last one are
    // final and can be sent while backward is running.
    if (i + 1 == batches.size() && communicator_->size() > 1) {
      reducer_.BeginOverlap(communicator_);
    }
    double scale = records / static_cast<double>(usual_records_);
    if (replica_.scales_loss()) scale *= loss_scale_.value();
    word.records += batches[i].records;
    if (device_ != nullptr) {
      ELASTICDL_ASSIGN_OR_RETURN(
          const torch::Tensor loss,
          replica_.EnqueueGradients(*batches[i].batch, scale));
      device_->loss_sum.add_(loss.to(torch::kFloat32).reshape({1}), records);
      continue;
    }
    ELASTICDL_ASSIGN_OR_RETURN(const double loss,
                               replica_.AddGradients(*batches[i].batch, scale));
    word.loss_sum += static_cast<float>(loss * records);
  }
  return absl::OkStatus();
}

absl::Status ElasticTrainer::Reduce(const elastic::MemberWord& word,
                                    elastic::RoundSummary& summary) {
  const int size = communicator_->size();
  float* control =
      replica_.parameters().gradients() - elastic::ControlWordSize(size);
  elastic::FillControlWord(word, communicator_->rank(), size, control);
  if (size > 1) {
    float* statistics = control - buffers_.size();
    buffers_.Fill(
        static_cast<double>(word.records) / static_cast<double>(usual_records_),
        statistics);
    ELASTICDL_RETURN_IF_ERROR(reducer_.Finish(
        communicator_, elastic::ControlWordSize(size) + buffers_.size()));
    ELASTICDL_RETURN_IF_ERROR(elastic::CheckRound(control, size, word.round));
    summary = elastic::ReadControlWord(control, size);
    if (summary.total_records > 0) {
      buffers_.Take(statistics, static_cast<double>(usual_records_) /
                                    static_cast<double>(summary.total_records));
    }
    return absl::OkStatus();
  }
  replica_.parameters().CollectGradients();
  summary = elastic::ReadControlWord(control, size);
  return absl::OkStatus();
}

absl::Status ElasticTrainer::ReduceOnDevice(const elastic::MemberWord& word,
                                            elastic::RoundSummary& summary) {
  const int size = communicator_->size();
  const size_t words = elastic::ControlWordSize(size);
  FlatParameters& flat = replica_.parameters();
  // As on the CPU: buffers, control word, gradients.
  const torch::Tensor control = flat.GradientRange(0, 0, words);
  const torch::Tensor statistics =
      flat.GradientRange(0, 0, words + buffers_.size())
          .narrow(0, 0, static_cast<int64_t>(buffers_.size()));
  EnqueueHead(word, control, statistics);
  // Sums in host memory wait for the gradients in any case. Those of a device
  // communicator are enqueued first, so that the device does not idle.
  const bool by_device = communicator_->device() != nullptr;
  if (!by_device) AwaitOwnWork();
  if (size > 1) {
    ELASTICDL_RETURN_IF_ERROR(
        reducer_.Finish(communicator_, words + buffers_.size()));
  } else {
    flat.CollectGradients();
  }
  EnqueueCheck();
  if (by_device) AwaitOwnWork();
  ELASTICDL_RETURN_IF_ERROR(ReadWord(control, /*shared=*/size > 1));
  const float* const summed = device_->incoming.data_ptr<float>();
  ELASTICDL_RETURN_IF_ERROR(elastic::CheckRound(summed, size, word.round));
  summary = elastic::ReadControlWord(summed, size);
  if (size > 1 && summary.total_records > 0) {
    buffers_.Take(statistics, static_cast<double>(usual_records_) /
                                  static_cast<double>(summary.total_records));
  }
  return absl::OkStatus();
}

void ElasticTrainer::EnqueueHead(const elastic::MemberWord& word,
                                 const torch::Tensor& control,
                                 const torch::Tensor& statistics) {
  // A device whose queue is full makes whoever enqueues wait.
  const elastic::Watchdog::Watch watch(watchdog_, "computing on the device",
                                       replica_.step() + 1);
  const int rank = communicator_->rank();
  const int size = communicator_->size();
  elastic::FillControlWord(word, rank, size,
                           device_->outgoing.data_ptr<float>());
  control.copy_(device_->outgoing.narrow(0, 0, control.numel()),
                /*non_blocking=*/true);
  control.narrow(0, static_cast<int64_t>(elastic::LossSumIndex(rank)), 1)
      .copy_(device_->loss_sum);
  if (size > 1) {
    buffers_.Fill(
        static_cast<double>(word.records) / static_cast<double>(usual_records_),
        statistics);
  }
  device_->computed.Record(CurrentStream(replica_.device()));
}

absl::Status ElasticTrainer::ReadWord(const torch::Tensor& control,
                                      bool shared) {
  device_->incoming.narrow(0, 0, control.numel())
      .copy_(control, /*non_blocking=*/true);
  const c10::Stream stream = CurrentStream(replica_.device());
  if (shared && communicator_->device() != nullptr) {
    device_->read.Record(stream);
    return communicator_->device()->Wait(device_->read.get(), device_timeout_);
  }
  // The sum is there; only this device's own work is left.
  const elastic::Watchdog::Watch watch(watchdog_, "copying from the device",
                                       replica_.step() + 1);
  Synchronize(stream);
  return absl::OkStatus();
}

void ElasticTrainer::EnqueueCheck() {
  if (!replica_.scales_loss()) return;
  const torch::NoGradGuard no_grad;
  // In one pass and without temporaries; what is no number stays none.
  const torch::Tensor largest =
      torch::linalg_vector_norm(replica_.parameters().gradient_tensor(),
                                std::numeric_limits<double>::infinity());
  device_->largest.copy_(largest.reshape({1}), /*non_blocking=*/true);
}

void ElasticTrainer::AwaitOwnWork() {
  // Nothing of this waits for another member: a worker whose GPU is slow is the
  // one that the others wait for, not one that waits.
  const trace::ScopedKind timed(replica_.step_clock(), trace::Kind::kBackward);
  const elastic::Watchdog::Watch watch(watchdog_, "computing on the device",
                                       replica_.step() + 1);
  device_->computed.Block(device_->waiting);
  Synchronize(device_->waiting);
}

float ElasticTrainer::OwnLossSum() {
  const int size = communicator_->size();
  const float* word = device_ != nullptr ? device_->incoming.data_ptr<float>()
                                         : replica_.parameters().gradients() -
                                               elastic::ControlWordSize(size);
  return word[elastic::LossSumIndex(communicator_->rank())];
}

absl::Status ElasticTrainer::AcceptBuffers() {
  return OnDevice("keeping the buffers of the model", [this] {
    const elastic::Watchdog::Watch watch(watchdog_, "copying on the device");
    buffers_.Commit();
    return absl::OkStatus();
  });
}

void ElasticTrainer::Scale(double factor) {
  FlatParameters& flat = replica_.parameters();
  if (device_ != nullptr) {
    flat.gradient_tensor().mul_(static_cast<float>(factor));
    return;
  }
  float* gradients = flat.gradients();
  const auto scale = static_cast<float>(factor);
  for (size_t i = 0; i < flat.size(); ++i) gradients[i] *= scale;
}

absl::Status ElasticTrainer::WarmUp(const Batch& batch) {
  const elastic::Watchdog::Watch watch(watchdog_, "the first step");
  const absl::Status added = replica_.AddGradients(batch, 1).status();
  const absl::Status undone = OnDevice("undoing a step", [this] {
    buffers_.RollBack();
    replica_.parameters().ZeroGradients();
    return absl::OkStatus();
  });
  // What is wrong with zeros for weights (a loss of 0 / 0) may be right with
  // those of the world, and what is not fails there.
  const bool counts = !replica_.lacks_values() || IsDeviceFailure(added) ||
                      IsOutOfDeviceMemory(added);
  return added.ok() || !counts ? undone : added;
}

}  // namespace elasticdl::worker
