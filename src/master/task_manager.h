// The data ledger: which records are committed, held, returned or quarantined.
// docs/design/0001-data-ledger.md explains states and events.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/ledger.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation_tasks.h"
#include "range_queue.h"
#include "task_clock.h"
#include "task_types.h"

namespace elasticdl::master {

// Thread-compatible. A pure state machine: no threads, no I/O, time is an
// argument and must not go backwards. Calls about a task that this worker does
// not hold (any more) get FAILED_PRECONDITION and change nothing: this fences a
// lost worker that wakes up again.
class TaskManager {
 public:
  // INVALID_ARGUMENT as Validate().
  static absl::StatusOr<TaskManager> Create(TaskManagerOptions options);

  // The next task for the worker: evaluation first, then training, prediction,
  // train end. A worker may hold several (one in use, others read ahead); how
  // many is the caller's decision (NumHeld). Near the end of the last epoch
  // tasks get smaller, so that all workers finish together.
  GrantResult Grant(absl::Time now, int64_t worker_id,
                    const TaskKinds& kinds = TaskKinds());
  // The worker's unfinished tasks of the type.
  int NumHeld(int64_t worker_id, v1::TaskType type) const;
  // Records of its training tasks that are not committed yet.
  int64_t TrainingRecordsHeld(int64_t worker_id) const;
  // Records of a whole training task.
  int64_t training_task_size() const {
    return training_.blocks().records_per_block();
  }
  // Ranges left to grant in the last epoch; unlimited before the last epoch.
  int64_t NumLastTrainingRanges() const;

  // TRAINING: all positions before `end` are in the model. Returns what is new;
  // begin == end when the same commit came before. Going backwards, or beyond
  // the task, is FAILED_PRECONDITION. The task is done when its end is reached.
  absl::StatusOr<CommittedRange> Commit(absl::Time now, int64_t worker_id,
                                        int64_t task_id, int64_t end);
  // The next `records` records of the worker's training tasks, in the order in
  // which it got them, are in the model. FAILED_PRECONDITION, and nothing
  // changes, when it holds fewer.
  absl::StatusOr<std::vector<CommittedRange>> CommitNext(absl::Time now,
                                                         int64_t worker_id,
                                                         int64_t records);
  // The first record of the worker's training tasks that is not committed, up
  // to the end of its task.
  std::optional<v1::LedgerRange> NextUncommitted(int64_t worker_id) const;
  // All that is not committed of the worker's training tasks.
  std::vector<v1::LedgerRange> Uncommitted(int64_t worker_id) const;
  // Commits [begin, end) for whoever holds it as the next part of a training
  // task; nothing when nobody does.
  absl::StatusOr<std::optional<CommittedRange>> CommitRange(
      absl::Time now, const v1::LedgerRange& range);
  // The first epoch with a record that is not committed.
  int32_t OldestEpoch() const;
  // At most a minibatch of records that were committed before, for a warm-up;
  // task id 0. Nothing before the first commit.
  std::optional<v1::Task> Sample() const;
  // EVALUATION, PREDICTION, TRAIN_END_CALLBACK: all of it is done. False when
  // the same report came before.
  // `output_bytes`: how long the worker's file of predictions is with it.
  absl::StatusOr<bool> Done(absl::Time now, int64_t worker_id, int64_t task_id,
                            int64_t output_bytes = 0);
  // The last of those, by worker.
  const std::map<int64_t, int64_t>& output_bytes() const {
    return output_bytes_;
  }
  // OK when the worker holds the task, else FAILED_PRECONDITION.
  absl::Status CheckHeld(int64_t worker_id, int64_t task_id) const;
  // NONE when nobody holds the task.
  v1::TaskType HeldType(int64_t task_id) const;

  // The worker is lost. The uncommitted rest of its tasks is returned to the
  // front of the queue. Only the task in use counts a failure, and only if the
  // worker crashed. Returns the number of returned tasks; 0 for unknown
  // workers.
  int WorkerLost(absl::Time now, int64_t worker_id, WorkerLoss loss,
                 absl::string_view message = "");

  // The model is at `step` now (the largest reported counts). Call it after the
  // commits of that step. Reaching max_step ends the training; a step beyond it
  // is FAILED_PRECONDITION.
  absl::Status SetStep(int64_t step);
  int64_t step() const { return step_; }
  // Ends the training early; the remaining data is left out on purpose, but
  // stays due in the ledger. Commits of tasks in use are still accepted.
  void StopTraining(absl::string_view reason);
  // Why it was ended early; empty: it was not.
  const std::string& stop_reason() const { return stop_reason_; }

  // Tasks over the validation data for `version`. FAILED_PRECONDITION while
  // another evaluation runs or without validation data.
  absl::Status StartEvaluation(int64_t version);
  // Forgets the running evaluation, if any; its tasks become stale.
  void CancelEvaluation(absl::Time now);
  // The running or last evaluation; nullopt before the first.
  std::optional<EvaluationProgress> evaluation() const {
    return evaluation_.progress();
  }
  bool EvaluationRunning() const { return evaluation_.running(); }
  // Training is done and final_evaluation asks for one of version step().
  bool FinalEvaluationDue() const;

  // Workers that made no progress on the task in use for too long, and when the
  // next one will be overdue unless it reports. Nothing changes; call
  // WorkerLost for them. While an evaluation runs, training tasks are not
  // overdue: their holders may be waiting for it.
  std::vector<OverdueTask> Expire(absl::Time now) const;
  // All workers have a reason not to work on their tasks: restarts their
  // clocks.
  void RestartClocks(absl::Time now) { clock_.RestartAll(now); }
  // This one has.
  void RestartClock(absl::Time now, int64_t worker_id) {
    if (workers_.count(worker_id) > 0) clock_.Report(worker_id, now);
  }
  // When it last reported progress; InfinitePast: it has no task.
  absl::Time LastReport(int64_t worker_id) const {
    const auto it = workers_.find(worker_id);
    return it == workers_.end() || it->second.tasks.empty()
               ? absl::InfinitePast()
               : clock_.LastReport(worker_id);
  }
  absl::Time NextExpiry() const;  // InfiniteFuture: never.

  // All training data is committed or quarantined, or training was stopped.
  bool TrainingDone() const;
  // Nothing is left to do.
  bool Finished() const;
  TaskProgress progress() const;
  // Of the training data. Takes time for each task that is held.
  LedgerCounts ledger_counts() const;
  TaskSummary Summary() const;

  // The training's ledger as of now.
  v1::Ledger Snapshot() const;
  // Continues where a snapshot was taken; before the first Grant only. Other
  // data, block size or shuffling: FAILED_PRECONDITION names the difference;
  // an impossible ledger is DATA_LOSS. num_epochs and max_step may differ.
  absl::Status Restore(const v1::Ledger& ledger);
  // Rollback to `ledger` (a snapshot of this or a former run): everything after
  // it is due again and all training tasks become stale. Failure counts and
  // quarantined ranges are kept. An evaluation of a lost version is cancelled.
  // Errors as Restore; FAILED_PRECONDITION after train end.
  absl::Status CutBack(absl::Time now, const v1::Ledger& ledger);

  // ---- for the journal ----
  // Hears of every change from now on that Apply can repeat, once it is made.
  using Recorder = std::function<void(const v1::TaskEvent& event)>;
  void SetRecorder(Recorder recorder) { recorder_ = std::move(recorder); }
  // A restarted master continues with these tasks. The ids of evaluation tasks
  // are not recorded, so the ids that the previous master may have used are
  // skipped: a report on one of its tasks must not be mistaken for one on a new
  // task.
  void BeginNewIds();
  // Repeats a recorded change; what it committed, if that was it. The same
  // changes from the same start give the same tasks, but for evaluations, which
  // are not recorded. DATA_LOSS when the change does not fit.
  absl::StatusOr<std::optional<CommittedRange>> Apply(
      absl::Time now, const v1::TaskEvent& event);
  // What all changes so far have led to, apart from evaluations, and back (into
  // a new manager of the same data; else DATA_LOSS).
  v1::TaskState State() const;
  absl::Status LoadState(absl::Time now, const v1::TaskState& state);
  // The worker's tasks that were granted after task `after`, in that order, for
  // a worker that may not have received the last messages.
  std::vector<v1::Task> HeldSince(int64_t worker_id, int64_t after) const;
  // Who holds tasks.
  std::vector<int64_t> Holders() const;

 private:
  enum class TrainEnd { kNotWanted, kDue, kHeld, kDone, kFailed };
  struct Held {
    int64_t worker_id = 0;
    v1::TaskType type = v1::NONE;
    Range range;  // What is not committed yet.
  };
  struct FinishedTask {
    int64_t task_id = 0;
    int64_t end = 0;
    v1::TaskType type = v1::NONE;
  };
  struct Worker {
    std::vector<int64_t> tasks;  // Unfinished, oldest first.
    // The last finished ones, to recognise repeated reports.
    std::deque<FinishedTask> finished;
  };
  TaskManager(TaskManagerOptions options, RangeQueue training,
              RangeQueue validation, RangeQueue prediction);

  // task_grant.cc: granting.
  std::optional<v1::Task> GrantFrom(absl::Time now, int64_t worker_id,
                                    const TaskKinds& kinds);
  std::optional<v1::Task> Hand(absl::Time now, int64_t worker_id,
                               v1::TaskType type, const Range& range);
  // 0: none may be granted now.
  int64_t TrainingTaskLimit() const;
  // What is neither done nor held of max_step.
  int64_t StepsToHandOut() const;
  NoTask WhyNothing(const TaskKinds& kinds) const;
  bool TrainEndReady() const;
  int NumHeld(v1::TaskType type) const;

  // task_manager.cc: reports and losses.
  // The queue that the type's ranges come from; null for TRAIN_END_CALLBACK.
  RangeQueue* QueueOf(v1::TaskType type);
  const RangeQueue* QueueOf(v1::TaskType type) const {
    return const_cast<TaskManager*>(this)->QueueOf(type);
  }
  bool WasFinished(int64_t worker_id, int64_t task_id,
                   std::optional<int64_t> end) const;
  void Complete(absl::Time now, int64_t task_id);
  // Takes the task from its worker without any other consequence.
  Held Drop(absl::Time now, int64_t task_id);
  // To the front of its queue.
  void TakeBack(const Held& held);
  // True when the rest of the task was quarantined.
  bool CountFailure(const Held& held, absl::string_view message);
  void CheckEvaluationComplete(absl::Time now);
  void StopAtMaxStep();

  // task_journal.cc: recorded changes.
  void Record(const v1::TaskEvent& event) const {
    if (recorder_) recorder_(event);
  }
  void RecordGrant(int64_t worker_id, int64_t task_id, v1::TaskType type,
                   const Range& range) const;
  absl::Status ApplyGrant(absl::Time now, const v1::TaskEvent::Granted& event);
  v1::Task MakeTask(int64_t task_id, v1::TaskType type,
                    const Range& range) const;
  int WorkerLost(absl::Time now, int64_t worker_id, int64_t suspect,
                 absl::string_view message);

  // task_state.cc: the complete state.
  uint32_t DataChecksum() const;
  void LoadHeld(absl::Time now, const v1::TaskState::Held& held,
                const Range& range);

  int64_t TaskInUse(const Worker& worker) const;  // 0 = none.
  // The worker's task in use, if there is a limit to its silence.
  std::optional<OverdueTask> Watched(int64_t worker_id,
                                     const Worker& worker) const;

  // task_ledger.cc: ledgers of checkpoints.
  struct LoadedLedger {
    std::vector<Range> outstanding;
    std::vector<Range> quarantined;
  };
  absl::Status CheckSameData(const v1::Ledger& ledger) const;
  absl::StatusOr<LoadedLedger> Parse(const v1::Ledger& ledger) const;
  // One more task is held (1), or one less (-1).
  void CountHeld(v1::TaskType type, const Range& range, int change);
  void Load(const v1::Ledger& ledger, const LoadedLedger& loaded);

  TaskManagerOptions options_;
  Recorder recorder_;
  RangeQueue training_;
  RangeQueue prediction_;
  EvaluationTasks evaluation_;
  TaskClock clock_;
  TrainEnd train_end_ = TrainEnd::kNotWanted;
  int train_end_failures_ = 0;

  int64_t next_task_id_ = 1;
  std::map<int64_t, Held> held_;  // By task id.
  std::map<v1::TaskType, int> num_held_;
  // By epoch: how many training tasks are held. Each task that is handed out
  // names the oldest, and thousands are when a large world starts.
  std::map<int32_t, int> held_epochs_;
  std::map<int64_t, Worker> workers_;
  std::vector<QuarantinedRange> quarantined_;

  int64_t step_ = 0;
  int64_t committed_records_ = 0;
  int64_t predicted_records_ = 0;
  std::map<int64_t, int64_t> output_bytes_;
  std::optional<Range> last_committed_;
  std::string stop_reason_;  // Not empty: training was stopped.
};

}  // namespace elasticdl::master
