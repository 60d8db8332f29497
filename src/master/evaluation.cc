#include "evaluation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/metric.h"

namespace elasticdl::master {

EvaluationService::EvaluationService(const EvaluationOptions& options,
                                     TaskManager& tasks, absl::Time now)
    : options_(options), tasks_(tasks), next_due_(absl::InfiniteFuture()) {
  if (options_.throttle > absl::ZeroDuration()) {
    next_due_ = now + options_.start_delay;
  }
}

bool EvaluationService::DueAtStep(int64_t step) const {
  return options_.evaluation_steps > 0 && step > 0 && !running_ &&
         step % options_.evaluation_steps == 0 && step > version_;
}

bool EvaluationService::DueSince(int64_t step) const {
  if (options_.evaluation_steps <= 0 || running_) return false;
  const int64_t due = step - step % options_.evaluation_steps;
  return due > 0 && due > version_;
}

absl::Time EvaluationService::NextDueTime() const {
  return running_ ? absl::InfiniteFuture() : next_due_;
}

bool EvaluationService::DueByTime(absl::Time now) const {
  return now >= NextDueTime();
}

bool EvaluationService::DueAtEnd() const {
  return !running_ && tasks_.FinalEvaluationDue();
}

absl::Status EvaluationService::Start(absl::Time now, int64_t version) {
  ELASTICDL_RETURN_IF_ERROR(tasks_.StartEvaluation(version));
  running_ = true;
  version_ = version;
  started_ = now;
  any_report_ = false;
  sums_.clear();
  return absl::OkStatus();
}

absl::Status EvaluationService::Report(absl::Time now, int64_t worker_id,
                                       const v1::TaskDone& done) {
  // Before Done, which cannot be undone.
  if (tasks_.CheckHeld(worker_id, done.task_id()).ok()) {
    const v1::TaskType type = tasks_.HeldType(done.task_id());
    if (type != v1::EVALUATION) {
      return absl::FailedPreconditionError(
          absl::StrCat("task ", done.task_id(), " is of type ",
                       v1::TaskType_Name(type), ", not EVALUATION"));
    }
    ELASTICDL_RETURN_IF_ERROR(Check(done));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const bool first,
                             tasks_.Done(now, worker_id, done.task_id()));
  if (first) Add(done);
  return absl::OkStatus();
}

absl::Status EvaluationService::Check(const v1::TaskDone& done) const {
  const auto bad = [&done](absl::string_view name, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation task ", done.task_id(), ", metric '", name, "': ", why));
  };
  std::map<std::string, int> seen;
  for (const v1::MetricSums& metric : done.metrics()) {
    if (++seen[metric.name()] > 1) return bad(metric.name(), "reported twice");
    const absl::Status valid =
        metric::Value(metric.kind(), metric.sums()).status();
    if (!valid.ok()) return bad(metric.name(), valid.message());
    if (!any_report_) continue;
    const auto it = sums_.find(metric.name());
    if (it == sums_.end()) {
      return bad(metric.name(), "not in the reports before");
    }
    const Sums& known = it->second;
    if (known.kind != metric.kind() ||
        static_cast<int>(known.sums.size()) != metric.sums_size()) {
      return bad(metric.name(),
                 absl::StrCat("kind '", metric.kind(), "' of ",
                              metric.sums_size(), " sums, in reports before '",
                              known.kind, "' of ", known.sums.size()));
    }
  }
  if (any_report_) {
    for (const auto& [name, sums] : sums_) {
      if (seen.count(name) == 0) return bad(name, "missing");
    }
  }
  return absl::OkStatus();
}

void EvaluationService::Add(const v1::TaskDone& done) {
  any_report_ = true;
  for (const v1::MetricSums& metric : done.metrics()) {
    Sums& total = sums_[metric.name()];
    total.kind = metric.kind();
    total.sums.resize(metric.sums_size());
    for (int i = 0; i < metric.sums_size(); ++i) {
      total.sums[i] += metric.sums(i);
    }
  }
}

std::optional<EvaluationResult> EvaluationService::TakeResult(absl::Time now) {
  const std::optional<EvaluationProgress> progress = tasks_.evaluation();
  if (!running_ || !progress.has_value() || !progress->complete) {
    return std::nullopt;
  }
  EvaluationResult result;
  result.version = version_;
  result.records = progress->done_records;
  result.skipped_records = progress->skipped_records;
  result.duration = now - started_;
  if (!any_report_) {
    result.status = absl::DataLossError(
        absl::StrCat("version ", version_, " was not evaluated: all ",
                     result.skipped_records, " records were quarantined"));
  }
  for (const auto& [name, total] : sums_) {
    const absl::StatusOr<double> value = metric::Value(total.kind, total.sums);
    if (value.ok()) {
      result.metrics[name] = *value;
    } else {
      result.status.Update(value.status());
    }
  }
  Close(now);
  return result;
}

void EvaluationService::CutBack(absl::Time now, int64_t step) {
  if (version_ <= step) return;
  if (running_) {
    tasks_.CancelEvaluation(now);
    Close(now);
  }
  version_ = step;
}

void EvaluationService::Close(absl::Time now) {
  running_ = false;
  sums_.clear();
  if (options_.throttle > absl::ZeroDuration()) {
    next_due_ = now + options_.throttle;
  }
}

}  // namespace elasticdl::master
