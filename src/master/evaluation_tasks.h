// The tasks of an evaluation: the validation data, granted once for each
// version that is evaluated. (EvaluationService adds up the metrics.)
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "range_queue.h"
#include "task_types.h"

namespace elasticdl::master {

// Thread-compatible.
//
//   state     event                                     next
//   --------  ----------------------------------------  --------
//   idle      Start                                     running
//   running   nothing is left and nobody holds a task   complete
//   running   Cancel: the model of its version is lost  idle
//   complete  Start                                     running
class EvaluationTasks {
 public:
  explicit EvaluationTasks(RangeQueue validation)
      : validation_(std::move(validation)) {}

  // FAILED_PRECONDITION while another one runs or without validation data.
  absl::Status Start(int64_t version);
  void Cancel();
  bool running() const { return running_; }
  // Of the running or last evaluation; call it only when there was one.
  int64_t version() const;
  RangeQueue& queue();

  // The next range to evaluate; nothing when none is left or none runs.
  std::optional<Range> Pop();
  void Done(int64_t records) { round_->done_records += records; }
  // True when that has just completed the evaluation.
  bool CompleteIfDone(int num_held);

  // The newest version that is evaluated; -1 = none.
  int64_t evaluated_version() const { return evaluated_version_; }
  // As recorded by an earlier master.
  void SetEvaluated(int64_t version) { evaluated_version_ = version; }
  // After a rollback: an evaluation of a later version is void.
  void FallBack(int64_t step);

  // The running or last evaluation; nothing before the first.
  std::optional<EvaluationProgress> progress() const;

 private:
  struct Round {
    int64_t version = 0;
    RangeQueue queue;
    int64_t done_records = 0;
  };

  RangeQueue validation_;  // Never popped: copied for each round.
  // The running or last one.
  std::optional<Round> round_;
  bool running_ = false;
  int64_t evaluated_version_ = -1;
};

}  // namespace elasticdl::master
