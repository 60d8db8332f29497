// The common part of all kinds of models.
#include "model_base.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::model {
namespace {

constexpr char kBadRecordUrl[] = "elasticdl/bad_record";

std::string ShapeOf(const torch::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

}  // namespace

absl::Status FunctionError(const std::string& path, const std::string& function,
                           const std::string& why) {
  return absl::InternalError(
      absl::StrCat("function '", function, "' of ", path, " failed: ", why));
}

std::optional<int64_t> BadRecord(const absl::Status& status) {
  const auto payload = status.GetPayload(kBadRecordUrl);
  int64_t index = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &index)) {
    return std::nullopt;
  }
  return index;
}

absl::StatusOr<torch::Tensor> ModelBase::Loss(const torch::Tensor& labels,
                                              const Outputs& outputs) {
  torch::Tensor loss;
  ELASTICDL_RETURN_IF_ERROR(CallUser(
      path_, names_.loss, [&] { loss = functions_.loss(labels, outputs); }));
  if (!loss.defined() || loss.numel() != 1) {
    return FunctionError(
        path_, names_.loss,
        absl::StrCat("it must return one number, not a tensor of shape ",
                     loss.defined() ? ShapeOf(loss) : "(none)"));
  }
  return loss;
}

absl::StatusOr<OptimizerSpec> ModelBase::Optimizer() {
  OptimizerSpec spec;
  ELASTICDL_RETURN_IF_ERROR(CallUser(path_, names_.optimizer,
                                     [&] { spec = functions_.optimizer(); }));
  absl::StatusOr<OptimizerSpec> canonical = spec.Canonical();
  if (canonical.ok()) return canonical;
  return Annotate(canonical.status(),
                  absl::StrCat("function '", names_.optimizer, "' of ", path_));
}

absl::StatusOr<Batch> ModelBase::Feed(Records records, Mode mode,
                                      const Metadata& metadata) {
  absl::StatusOr<Batch> batch = FeedOnce(records, mode, metadata);
  if (batch.ok()) return batch;
  return BlameRecord(records, mode, metadata, batch.status());
}

absl::StatusOr<Batch> ModelBase::FeedOnce(Records records, Mode mode,
                                          const Metadata& metadata) {
  Batch batch;
  ELASTICDL_RETURN_IF_ERROR(CallUser(path_, names_.feed, [&] {
    batch = functions_.feed(records, mode, metadata);
  }));
  ELASTICDL_RETURN_IF_ERROR(CheckBatch(batch, records.size(), mode));
  return batch;
}

absl::Status ModelBase::CheckBatch(const Batch& batch, size_t num_records,
                                   Mode mode) const {
  for (const auto& [name, tensor] : batch.features.items()) {
    if (tensor.defined()) continue;
    return FunctionError(path_, names_.feed,
                         absl::StrCat("feature '", name, "' is undefined"));
  }
  if (batch.features.empty()) {
    return FunctionError(path_, names_.feed, "it returned no features");
  }
  if (mode == Mode::kPrediction) return absl::OkStatus();
  if (!batch.labels.defined()) {
    return FunctionError(path_, names_.feed, "it returned no labels");
  }
  if (batch.labels.dim() == 0 ||
      batch.labels.size(0) != static_cast<int64_t>(num_records)) {
    return FunctionError(
        path_, names_.feed,
        absl::StrCat("labels have shape ", ShapeOf(batch.labels), " for ",
                     num_records, " records"));
  }
  return absl::OkStatus();
}

absl::Status ModelBase::BlameRecord(Records records, Mode mode,
                                    const Metadata& metadata,
                                    const absl::Status& whole) {
  for (size_t i = 0; i < records.size(); ++i) {
    const auto one = FeedOnce(records.subspan(i, 1), mode, metadata);
    if (one.ok()) continue;
    absl::Status status = absl::DataLossError(
        absl::StrCat("record ", i, " of ", records.size(),
                     " in the minibatch: ", one.status().message()));
    status.SetPayload(kBadRecordUrl, absl::Cord(absl::StrCat(i)));
    return status;
  }
  return whole;
}

absl::StatusOr<MetricSet> ModelBase::CreateMetrics() {
  if (!functions_.metrics) {
    return absl::InvalidArgumentError(functions_.missing_metrics);
  }
  Metrics metrics;
  ELASTICDL_RETURN_IF_ERROR(CallUser(path_, names_.eval_metrics_fn,
                                     [&] { metrics = functions_.metrics(); }));
  for (const auto& [name, metric] : metrics) {
    if (metric != nullptr) continue;
    return FunctionError(path_, names_.eval_metrics_fn,
                         absl::StrCat("metric '", name, "' is null"));
  }
  return MetricSet(std::move(metrics));
}

absl::StatusOr<CallbackSet> ModelBase::CreateCallbacks() {
  Callbacks callbacks;
  if (functions_.callbacks) {
    ELASTICDL_RETURN_IF_ERROR(CallUser(
        path_, names_.callbacks, [&] { callbacks = functions_.callbacks(); }));
  }
  for (const auto& callback : callbacks) {
    if (callback == nullptr) {
      return FunctionError(path_, names_.callbacks, "a callback is null");
    }
  }
  return CallbackSet(std::move(callbacks));
}

}  // namespace elasticdl::model
