#include "evaluation_tasks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"

namespace elasticdl::master {

absl::Status EvaluationTasks::Start(int64_t version) {
  if (running()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot evaluate version ", version, ": the evaluation of version ",
        round_->version, " is still running"));
  }
  if (validation_.Empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot evaluate version ", version, ": there is no validation data"));
  }
  round_.emplace(Round{version, validation_});
  running_ = true;
  return absl::OkStatus();
}

void EvaluationTasks::Cancel() {
  round_.reset();
  running_ = false;
}

int64_t EvaluationTasks::version() const {
  ELASTICDL_CHECK(round_.has_value());
  return round_->version;
}

RangeQueue& EvaluationTasks::queue() {
  ELASTICDL_CHECK(round_.has_value());
  return round_->queue;
}

std::optional<Range> EvaluationTasks::Pop() {
  if (!round_.has_value()) return std::nullopt;
  return round_->queue.Pop(round_->queue.blocks().records_per_block());
}

bool EvaluationTasks::CompleteIfDone(int num_held) {
  if (!running() || num_held > 0 || !round_->queue.Empty()) return false;
  running_ = false;
  evaluated_version_ = std::max(evaluated_version_, round_->version);
  return true;
}

void EvaluationTasks::FallBack(int64_t step) {
  if (evaluated_version_ > step) evaluated_version_ = -1;
}

std::optional<EvaluationProgress> EvaluationTasks::progress() const {
  if (!round_.has_value()) return std::nullopt;
  EvaluationProgress progress;
  progress.version = round_->version;
  progress.complete = !running_;
  progress.total_records = validation_.blocks().num_records();
  progress.done_records = round_->done_records;
  progress.skipped_records = round_->queue.num_set_aside();
  return progress;
}

}  // namespace elasticdl::master
