#include "task_types.h"

#include "absl/strings/str_cat.h"
#include "elasticdl/common/text.h"

namespace elasticdl::master {
namespace {

absl::Status Bad(absl::string_view field, int64_t value,
                 absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", expected ", expected));
}

}  // namespace

absl::Status TaskManagerOptions::Validate() const {
  // Bounds keep the product inside 62 bits.
  constexpr int64_t kLargest = int64_t{1} << 31;
  if (minibatch_size < 1 || minibatch_size >= kLargest) {
    return Bad("minibatch_size", minibatch_size, "1 or more");
  }
  if (num_minibatches_per_task < 1 || num_minibatches_per_task >= kLargest) {
    return Bad("num_minibatches_per_task", num_minibatches_per_task,
               "1 or more");
  }
  if (max_step < 0) return Bad("max_step", max_step, "0 or more");
  if (task_max_failures < 1) {
    return Bad("task_max_failures", task_max_failures, "1 or more");
  }
  if (task_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task_timeout is ", absl::FormatDuration(task_timeout), ", below 0"));
  }
  if (final_evaluation && validation_shards.empty()) {
    return absl::InvalidArgumentError(
        "final_evaluation needs validation_shards");
  }
  return absl::OkStatus();
}

absl::string_view NoTaskName(NoTask reason) {
  switch (reason) {
    case NoTask::kGranted:
      return "granted";
    case NoTask::kWaitForOthers:
      return "all tasks are granted";
    case NoTask::kOtherKindsDue:
      return "nothing of the kinds asked for";
    case NoTask::kTrainingDone:
      return "training is done";
    case NoTask::kAllDone:
      return "all is done";
  }
  return "";
}

std::string TaskSummary::ToString() const {
  std::string text = finished ? "finished" : "not finished";
  // Evaluation tells its own records.
  if (committed_records > 0) {
    absl::StrAppend(&text, ", ", Count(committed_records, "record"),
                    " trained");
  }
  if (predicted_records > 0) {
    absl::StrAppend(&text, ", ", predicted_records, " predicted");
  }
  if (!stop_reason.empty()) {
    absl::StrAppend(&text, ", stopped early (", stop_reason, ")");
    if (discarded_records > 0) {
      absl::StrAppend(&text, " with ", Count(discarded_records, "record"),
                      " left");
    }
  }
  if (!quarantined.empty()) {
    absl::StrAppend(&text, ", ", Count(quarantined_records, "record"),
                    " quarantined after failures:");
    for (const QuarantinedRange& bad : quarantined) {
      absl::StrAppend(&text, " ", v1::TaskType_Name(bad.type), " '",
                      bad.range.shard(), "' ", bad.range.begin(), "-",
                      bad.range.end(), " of epoch ", bad.range.epoch(), " (",
                      bad.last_error, ");");
    }
    text.pop_back();
  }
  return text;
}

}  // namespace elasticdl::master
