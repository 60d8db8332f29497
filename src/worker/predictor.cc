#include "predictor.h"

#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

Predictor::Predictor(const Deps& deps, PredictionOutput output,
                     std::unique_ptr<MinibatchSource> source)
    : deps_(deps), output_(std::move(output)), source_(std::move(source)) {}

absl::Status Predictor::Predict(Minibatch& minibatch) {
  const elastic::Watchdog::Watch watch(deps_.watchdog, "prediction");
  absl::StatusOr<Batch> batch = minibatch.Take();
  source_->Release();
  ELASTICDL_RETURN_IF_ERROR(batch.status());
  ELASTICDL_ASSIGN_OR_RETURN(const Outputs outputs,
                             deps_.replica.Predict(batch->features));
  if (output_.processor != nullptr) {
    ELASTICDL_RETURN_IF_ERROR(
        output_.processor->Process(outputs, deps_.worker_id));
  } else {
    ELASTICDL_RETURN_IF_ERROR(output_.writer->Add(
        minibatch.task().range().shard(), minibatch.record_numbers(), outputs));
  }
  if (!minibatch.last_of_task()) return absl::OkStatus();
  if (output_.writer.has_value()) {
    ELASTICDL_RETURN_IF_ERROR(output_.writer->Flush());
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.predicted"));
  const v1::LedgerRange& range = minibatch.task().range();
  deps_.reports.Done(minibatch.task(), range.end() - range.begin(), {},
                     output_.writer.has_value() ? output_.writer->bytes() : 0);
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
