#include "elastic_trainer.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

ElasticTrainer::ElasticTrainer(Replica& replica,
                               GradientCompression compression,
                               elastic::Watchdog* watchdog)
    : replica_(replica),
      buffers_(replica.buffers()),
      reducer_(replica.parameters(), compression),
      watchdog_(watchdog) {}

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
  round.world = Reduce(word, round.summary);
  replica_.step_clock().Enter(trace::Kind::kOther);
  if (!round.world.ok()) {
    buffers_.RollBack();
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
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto records = static_cast<double>(batches[i].records);
    // Gradients add up over the batches, so only those of the last one are
    // final and can be sent while backward is running.
    if (i + 1 == batches.size() && communicator_->size() > 1) {
      reducer_.BeginOverlap(communicator_);
    }
    ELASTICDL_ASSIGN_OR_RETURN(
        const double loss,
        replica_.AddGradients(*batches[i].batch,
                              records / static_cast<double>(usual_records_)));
    word.records += batches[i].records;
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

void ElasticTrainer::Scale(double factor) {
  FlatParameters& flat = replica_.parameters();
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
