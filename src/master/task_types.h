// Inputs and outputs of the TaskManager.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/v1/ledger.pb.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

struct TaskManagerOptions {
  // What to read. They are sorted by (name, begin), so that the order of a
  // directory listing has no influence. Shards of one name must not overlap.
  std::vector<v1::LedgerShard> training_shards;
  std::vector<v1::LedgerShard> validation_shards;
  std::vector<v1::LedgerShard> prediction_shards;
  // Records of one minibatch; a task is a whole number of them.
  int64_t minibatch_size = 64;
  int64_t num_minibatches_per_task = 8;
  // 0 or less: endless.
  int32_t num_epochs = 1;
  // Order of blocks and inside blocks from (seed, epoch); else file order.
  bool shuffle = false;
  uint64_t seed = 0;
  // Training ends when exactly this many steps are committed; 0 = no limit.
  int64_t max_step = 0;
  // Every minibatch is a separate step: no more are granted than max_step
  // allows.
  bool minibatches_are_steps = false;
  // Failures at one position of a range until the range is quarantined.
  int task_max_failures = 3;
  // How long a worker may be silent on a task. Zero: the longer of 300 s and
  // three times the longest completed task of the same type.
  absl::Duration task_timeout = absl::ZeroDuration();
  // The last version must be evaluated before the job is finished (also the way
  // to describe an evaluation-only job: no training shards and this).
  bool final_evaluation = false;
  // One TRAIN_END_CALLBACK task after training and final evaluation.
  bool train_end_task = false;

  // INVALID_ARGUMENT names the field.
  absl::Status Validate() const;
};

// Positions that went into the model by one commit (a line of the audit).
struct CommittedRange {
  int32_t epoch = 0;
  std::string shard;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t worker_id = 0;
};

// Which kinds of tasks a worker can take at this moment.
struct TaskKinds {
  bool training = true;
  bool evaluation = true;
  bool prediction = true;
  bool train_end = true;
};

enum class NoTask {
  kGranted,        // There is a task.
  kWaitForOthers,  // All is handed out; it may come back if a holder fails.
  kOtherKindsDue,  // Something is due, but not of the kinds asked for.
  kTrainingDone,   // No training any more; other work is still going on.
  kAllDone,        // Finished().
};
absl::string_view NoTaskName(NoTask reason);

struct GrantResult {
  std::optional<v1::Task> task;
  NoTask reason = NoTask::kGranted;
};

enum class WorkerLoss {
  kPreempted,  // Asked to go, or killed from outside: nobody's fault.
  kCrashed,    // The process failed: the task in use is under suspicion.
};

// A range that failed too often and will not be granted again.
struct QuarantinedRange {
  v1::TaskType type = v1::NONE;
  v1::LedgerRange range;  // Empty for TRAIN_END_CALLBACK.
  int failures = 0;       // 0: known from a restored ledger.
  std::string last_error;
};

struct OverdueTask {
  int64_t worker_id = 0;
  int64_t task_id = 0;
  v1::TaskType type = v1::NONE;
  absl::Duration silent;
  absl::Duration limit;
};

struct TaskProgress {
  int64_t step = 0;
  int32_t epoch = 0;
  int32_t num_epochs = 0;  // <= 0: endless.
  int64_t records_per_epoch = 0;
  int64_t committed_records = 0;
  int64_t total_records = 0;      // Over all epochs; -1 = endless.
  int64_t blocks_handed_out = 0;  // Of this epoch.
  int64_t blocks_per_epoch = 0;
  int64_t predicted_records = 0;
  int64_t tasks_held = 0;
};

// Records that were granted at least once and are not in the model.
struct LedgerCounts {
  // Held by workers.
  int64_t in_flight = 0;
  // Returned from workers and granted next.
  int64_t returned = 0;
  // Quarantined.
  int64_t set_aside = 0;
};

struct TaskSummary {
  bool finished = false;
  // Finished and nothing was quarantined.
  bool success = false;
  int64_t committed_records = 0;
  int64_t predicted_records = 0;
  std::vector<QuarantinedRange> quarantined;
  int64_t quarantined_records = 0;
  // Why training ended before its data, and how much was left (-1 = endless).
  // Empty = it did not.
  std::string stop_reason;
  int64_t discarded_records = 0;

  // One line for people.
  std::string ToString() const;
};

struct EvaluationProgress {
  int64_t version = 0;
  bool complete = false;  // Nothing is left to do, or to come back.
  int64_t total_records = 0;
  int64_t done_records = 0;
  // Quarantined; above 0 the result does not cover all data.
  int64_t skipped_records = 0;
};

}  // namespace elasticdl::master
