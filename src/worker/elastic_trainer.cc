#include "elastic_trainer.h"

#include <cmath>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "device.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

ElasticTrainer::ElasticTrainer(Replica& replica,
                               GradientCompression compression,
                               elastic::Watchdog* watchdog)
    : replica_(replica),
      buffers_(replica.buffers()),
      reducer_(replica.parameters(), compression),
      watchdog_(watchdog) {
  if (!replica.on_cpu()) {
    device_ = std::make_unique<DeviceParts>(replica.device());
  }
}

ElasticTrainer::DeviceParts::DeviceParts(c10::Device device) : read(device) {
  const auto size =
      static_cast<int64_t>(elastic::ControlWordSize(kMaxWorldSize));
  const auto pinned = torch::TensorOptions(torch::kFloat32).pinned_memory(true);
  outgoing = torch::zeros({size}, pinned);
  incoming = torch::zeros({size}, pinned);
  loss_sum =
      torch::zeros({1}, torch::TensorOptions(torch::kFloat32).device(device));
}

void ElasticTrainer::EnterWorld(
    std::shared_ptr<collective::Communicator> communicator,
    int64_t usual_records) {
  communicator_ = std::move(communicator);
  usual_records_ = usual_records;
  reducer_.SetRecorder(replica_.step_clock().recorder());
}

absl::StatusOr<Round> ElasticTrainer::Run(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord word,
    double learning_rate) {
  if (device_ == nullptr) return RunRound(batches, word, learning_rate);
  absl::StatusOr<Round> round;
  ELASTICDL_RETURN_IF_ERROR(OnDevice("a step on the device", [&] {
    round = RunRound(batches, word, learning_rate);
    return round.status();
  }));
  return round;
}

absl::StatusOr<Round> ElasticTrainer::RunRound(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord word,
    double learning_rate) {
  Round round;
  absl::Status mine = AddGradients(batches, word);
  if (mine.ok()) {
    mine = elastic::CheckControlWord(word, communicator_->size());
  }
  if (!mine.ok()) {
    reducer_.Cancel();
    buffers_.RollBack();
    return mine;
  }
  replica_.step_clock().Enter(trace::Kind::kCommunication);
  round.world = device_ == nullptr ? Reduce(word, round.summary)
                                   : ReduceOnDevice(word, round.summary);
  replica_.step_clock().Enter(trace::Kind::kOther);
  if (!round.world.ok()) {
    buffers_.RollBack();
    return round;
  }
  // On a device nobody has looked at the loss before.
  if (device_ != nullptr && !std::isfinite(round.summary.mean_loss)) {
    buffers_.RollBack();
    const auto at =
        static_cast<int64_t>(elastic::LossSumIndex(communicator_->rank()));
    const float mine = device_->incoming[at].item<float>();
    if (!std::isfinite(mine)) return LossError(mine, replica_.step() + 1);
    round.world = absl::AbortedError("the loss of another member is no number");
    return round;
  }
  const int64_t records = round.summary.total_records;
  if (records == 0) return round;
  // Gradients were divided by the usual number before the real one was known.
  if (records != usual_records_) {
    Scale(static_cast<double>(usual_records_) / static_cast<double>(records));
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.apply"));
  replica_.ApplyGradients(learning_rate);
  buffers_.Commit();
  usual_records_ = records;
  round.stepped = true;
  return round;
}

absl::Status ElasticTrainer::AddGradients(
    const std::vector<WeightedBatch>& batches, elastic::MemberWord& word) {
  const elastic::Watchdog::Watch watch(watchdog_, "forward and backward",
                                       replica_.step() + 1);
  replica_.parameters().ZeroGradients();
  if (device_ != nullptr) device_->loss_sum.zero_();
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto records = static_cast<double>(batches[i].records);
    // Gradients add up over the batches, so only those of the last one are
    // final and can be sent while backward is running.
    if (i + 1 == batches.size() && communicator_->size() > 1) {
      reducer_.BeginOverlap(communicator_);
    }
    const double scale = records / static_cast<double>(usual_records_);
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
  const int rank = communicator_->rank();
  const int size = communicator_->size();
  const size_t words = elastic::ControlWordSize(size);
  FlatParameters& flat = replica_.parameters();
  // As on the CPU: buffers, control word, gradients.
  const torch::Tensor control = flat.GradientRange(0, 0, words);
  elastic::FillControlWord(word, rank, size,
                           device_->outgoing.data_ptr<float>());
  control.copy_(device_->outgoing.narrow(0, 0, control.numel()),
                /*non_blocking=*/true);
  control.narrow(0, static_cast<int64_t>(elastic::LossSumIndex(rank)), 1)
      .copy_(device_->loss_sum);
  if (size == 1) {
    flat.CollectGradients();
    ELASTICDL_RETURN_IF_ERROR(ReadWord(control, /*shared=*/false));
    summary =
        elastic::ReadControlWord(device_->incoming.data_ptr<float>(), size);
    return absl::OkStatus();
  }
  const torch::Tensor statistics =
      flat.GradientRange(0, 0, words + buffers_.size())
          .narrow(0, 0, static_cast<int64_t>(buffers_.size()));
  const auto usual = static_cast<double>(usual_records_);
  buffers_.Fill(static_cast<double>(word.records) / usual, statistics);
  ELASTICDL_RETURN_IF_ERROR(
      reducer_.Finish(communicator_, words + buffers_.size()));
  ELASTICDL_RETURN_IF_ERROR(ReadWord(control, /*shared=*/true));
  summary = elastic::ReadControlWord(device_->incoming.data_ptr<float>(), size);
  if (summary.total_records > 0) {
    buffers_.Take(statistics,
                  usual / static_cast<double>(summary.total_records));
  }
  return absl::OkStatus();
}

absl::Status ElasticTrainer::ReadWord(const torch::Tensor& control,
                                      bool shared) {
  device_->incoming.narrow(0, 0, control.numel())
      .copy_(control, /*non_blocking=*/true);
  const c10::Stream stream = CurrentStream(replica_.device());
  if (shared && communicator_->device() != nullptr) {
    device_->read.Record(stream);
    return communicator_->device()->Wait(device_->read.get(), kReduceTimeout);
  }
  Synchronize(stream);
  return absl::OkStatus();
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
  const auto roll_back = absl::MakeCleanup([this] {
    buffers_.RollBack();
    replica_.parameters().ZeroGradients();
  });
  return replica_.AddGradients(batch, 1).status();
}

}  // namespace elasticdl::worker
