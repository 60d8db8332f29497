// A minibatch on its way: pulled, computed, pushed.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "ps_trainer.h"

namespace elasticdl::worker {
namespace {

// Often enough for a display, seldom enough to cost nothing.
constexpr absl::Duration kReportInterval = absl::Milliseconds(200);

}  // namespace

absl::Status PsTrainer::Work() {
  absl::Status status =
      pending_.empty() ? FinishPush() : Train(pending_.front());
  if (status.ok()) return status;
  absl::Status shown = UnlessCancelled(status);
  // Stop is on its way through the queue.
  if (shown.ok()) over_ = true;
  return shown;
}

bool PsTrainer::DensePullDue(int64_t since_pull) const {
  return !async_ || since_pull < 0 || since_pull >= deps_.job.get_model_steps();
}

absl::Status PsTrainer::Train(Pending& next) {
  trace::StepClock& clock = deps_.replica.step_clock();
  if (!next.batch.has_value()) {
    clock.Enter(trace::Kind::kFeedWait);
    ELASTICDL_ASSIGN_OR_RETURN(next.batch, next.minibatch->Take());
  }
  const bool dense = DensePullDue(since_pull_);
  clock.Enter(trace::Kind::kCommunication);
  ELASTICDL_RETURN_IF_ERROR(WithModel([&] {
    return pipe_.Pull(*next.minibatch, next.batch->features, dense);
  }));
  if (dense) {
    deps_.replica.SetStep(pipe_.version());
    since_pull_ = 0;
  }
  clock.Enter(trace::Kind::kOther);
  PullAhead();
  if (!callbacks_->empty()) {
    ELASTICDL_RETURN_IF_ERROR(
        callbacks_->OnTrainBatchBegin(pipe_.version() + 1));
    learning_rate_ =
        callbacks_->learning_rate().value_or(deps_.replica.learning_rate());
  }
  ELASTICDL_RETURN_IF_ERROR(Compute(next, last_loss_));
  clock.Enter(trace::Kind::kCommunication);
  ELASTICDL_RETURN_IF_ERROR(Push(next));
  clock.Enter(trace::Kind::kOther);
  if (!async_) return absl::OkStatus();
  // Until the next pull the worker follows its own updates.
  if (++since_pull_ < deps_.job.get_model_steps()) {
    deps_.replica.ApplyGradients(learning_rate_);
  }
  pushing_ = std::move(next);
  pending_.pop_front();
  source_->Release();
  return deps_.job.ps_no_overlap() ? FinishPush() : absl::OkStatus();
}

void PsTrainer::PullAhead() {
  if (pending_.size() < 2) return;
  Pending& next = pending_[1];
  // When this one is computed. One that is to see the own updates so far, which
  // are on their way, is pulled when they have arrived.
  const bool due = DensePullDue(since_pull_ + 1);
  if (due && deps_.job.get_model_steps() > 1) return;
  if (!next.batch.has_value()) {
    absl::StatusOr<Batch> batch = next.minibatch->TakeIfReady();
    // An error is found again when its turn comes.
    if (!batch.ok()) return;
    next.batch = *std::move(batch);
  }
  pipe_.PullAhead(*next.minibatch, next.batch->features, due);
}

absl::Status PsTrainer::Compute(const Pending& next, double& loss) {
  deps_.replica.parameters().ZeroGradients();
  const absl::StatusOr<double> computed =
      deps_.replica.AddGradients(*next.batch, 1);
  if (computed.ok()) {
    loss = *computed;
    return absl::OkStatus();
  }
  // A server's fault is not that of the records.
  if (!pipe_.rows_status().ok()) return pipe_.rows_status();
  return Annotate(computed.status(),
                  absl::StrCat("training on records ", next.minibatch->begin(),
                               " to ", next.minibatch->end(), " of ",
                               next.minibatch->task().range().shard()));
}

absl::Status PsTrainer::Push(const Pending& next) {
  // One is on its way at most.
  ELASTICDL_RETURN_IF_ERROR(FinishPush());
  const Minibatch& minibatch = *next.minibatch;
  const v1::LedgerRange& range = minibatch.task().range();
  v1::PsPush push;
  push.set_shard(range.shard());
  push.set_epoch(range.epoch());
  push.set_begin(minibatch.begin());
  push.set_end(minibatch.end());
  push.set_oldest_epoch(minibatch.task().oldest_epoch());
  push.set_learning_rate(learning_rate_);
  push.set_stage(!async_);
  push.set_base_version(pipe_.oldest_version());
  pipe_.Push(push, next.batch->features);
  if (async_) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(pipe_.FinishPush());
  v1::Staged& staged = staged_.emplace();
  staged.set_task_id(minibatch.task().task_id());
  *staged.mutable_range() = range;
  staged.mutable_range()->set_begin(minibatch.begin());
  staged.mutable_range()->set_end(minibatch.end());
  staged.set_base_version(push.base_version());
  staged.set_loss(last_loss_);
  staged.set_learning_rate(learning_rate_);
  staged.set_map_version(client_.map_version());
  SendStaged();
  return absl::OkStatus();
}

absl::Status PsTrainer::FinishPush() {
  if (!pushing_.has_value()) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(pipe_.FinishPush());
  const std::shared_ptr<Minibatch> minibatch = pushing_->minibatch;
  pushing_.reset();
  AfterMinibatch(*minibatch);
  return absl::OkStatus();
}

void PsTrainer::AfterMinibatch(const Minibatch& minibatch) {
  const int64_t step = pipe_.version() + 1;
  const int64_t every = deps_.job.log_loss_steps();
  if (every > 0 && step % every == 0) {
    LogInfo("step ", step, " loss ", last_loss_, " lr ", learning_rate_);
  }
  trained_records_ += minibatch.records();
  deps_.replica.step_clock().CountStep(step, minibatch.records());
  if (minibatch.last_of_task() ||
      deps_.environment.clock().Now() - last_report_ >= kReportInterval) {
    Report();
  }
  AskStopIfWanted();
}

}  // namespace elasticdl::worker
