#include "evaluator.h"

#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

Evaluator::Evaluator(const Deps& deps, model::MetricSet metrics,
                     std::unique_ptr<MinibatchSource> source)
    : deps_(deps), metrics_(std::move(metrics)), source_(std::move(source)) {}

absl::Status Evaluator::Evaluate(Minibatch& minibatch) {
  const elastic::Watchdog::Watch watch(deps_.watchdog, "evaluation");
  absl::StatusOr<Batch> batch = minibatch.Take();
  source_->Release();
  ELASTICDL_RETURN_IF_ERROR(batch.status());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.evaluate"));
  ELASTICDL_ASSIGN_OR_RETURN(const Outputs outputs,
                             deps_.replica.Predict(batch->features));
  ELASTICDL_RETURN_IF_ERROR(metrics_.Update(batch->labels, outputs));
  records_ += minibatch.records();
  if (minibatch.last_of_task()) {
    deps_.reports.Done(minibatch.task(), records_, metrics_.Take());
    records_ = 0;
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
