// The master's decisions about one job: who gets which task, when to evaluate,
// what a lost worker means, when the job is over. Pure: events in, calls of
// JobOutput out, time as an argument. docs/architecture.md has the diagram.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/rendezvous/membership.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "elasticdl/v1/job.pb.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation.h"
#include "rate_meter.h"
#include "task_manager.h"
#include "world_change.h"

namespace elasticdl::master {

using rendezvous::ConnectionId;

// How a job ended.
struct JobResult {
  int exit_code = 0;
  std::string message;
};
inline constexpr int kExitJobFailed = 1;
// Done, but some records were set aside (quarantine).
inline constexpr int kExitRecordsSetAside = 4;

// What the controller wants done or known. Must not call back.
class JobOutput {
 public:
  virtual ~JobOutput() = default;
  // To each of them.
  virtual void Send(const std::vector<ConnectionId>& connections,
                    v1::MasterMessage message) = 0;
  virtual void Close(ConnectionId connection, const absl::Status& status) = 0;
  // The worker's process must go (it hangs or is not wanted).
  virtual void KillWorker(int64_t worker_id, const std::string& reason) = 0;

  // For the event log, the audit and people.
  virtual void OnWorkerReady(int64_t worker_id, int64_t pid, int64_t step) = 0;
  virtual void OnWorkerLost(int64_t worker_id, const std::string& reason) = 0;
  virtual void OnCommit(const CommittedRange& range, int64_t step,
                        int64_t generation) = 0;
  // Every commit after `step` is void: the model fell back to that step.
  virtual void OnCutBack(int64_t step) = 0;
  // `records`: those that are new in the model.
  virtual void OnProgress(const v1::Progress& progress, int64_t records) = 0;
  virtual void OnWorld(const WorldChange& world) = 0;
  // The first step that is known to be committed in a world.
  virtual void OnFirstStep(int64_t generation, int64_t step) = 0;
  virtual void OnCheckpoint(const v1::CheckpointDone& done) = 0;
  virtual void OnEvaluation(const EvaluationResult& result) = 0;
  // Records of an evaluation or prediction task that is done.
  virtual void OnTaskDone(int64_t records) = 0;
  // A task was set aside.
  virtual void OnQuarantined(const QuarantinedRange& bad) = 0;
  // Anything else worth a line.
  virtual void OnMessage(const std::string& text) = 0;
};

// Where the audit is to be cut before a successor goes on with this journal: it
// tells the commits after that place again. Nothing: there were none.
std::optional<int64_t> AuditBytesToKeep(
    const std::vector<v1::JournalRecord>& replay);

// How the process of a worker ended, as far as its pod tells.
struct WorkerEnd {
  bool crashed = false;
  std::string reason;
};

// Thread-compatible.
class JobController {
 public:
  struct Options {
    v1::JobSpec job;
    // Its shards may be replaced by those of a worker whose model has a data
    // reader of its own. Without such a worker, `data_error` (if not OK: why
    // the shards are not known) fails the job.
    TaskManagerOptions tasks;
    absl::Status data_error;
    EvaluationOptions evaluation;
    // Start from this version-V folder and, if it has one that fits, its
    // ledger; `restore_step` is its V.
    std::string restore_from;
    int64_t restore_step = 0;
    std::optional<v1::Ledger> restore_ledger;
    // Of a training job.
    rendezvous::MembershipOptions membership;
    // One task in use, one read ahead; of training tasks more when they are
    // short (TrainingWindow).
    int window = 2;
    // Workers are pods of ours: how one ended will be told by OnWorkerEnded.
    bool has_pods = true;
    // How long after its stream broke a worker's pod may take to say why.
    absl::Duration end_grace = absl::Seconds(5);
    // The folder of the complete checkpoint of a step, if it is on disk.
    std::function<std::optional<std::string>(int64_t step)> find_checkpoint;
    // Gets what must outlive this process, before anybody hears of it. Null =
    // nothing shall.
    std::function<void(const v1::JournalRecord& record)> record;
    // What the master before this one has recorded; empty = there was none.
    std::vector<v1::JournalRecord> replay;
    // How long its workers may take to come back.
    absl::Duration resume_grace = absl::Seconds(30);
  };

  // `output` must outlive the controller.
  static absl::StatusOr<std::unique_ptr<JobController>> Create(
      Options options, JobOutput& output, absl::Time now);

  // Starts the journal, or takes over from the master that has written it.
  // Before any event; not needed without a journal. DATA_LOSS when the journal
  // does not fit the job.
  absl::Status Begin(absl::Time now);

  // ---- events ----
  void OnMessage(absl::Time now, ConnectionId connection,
                 const v1::WorkerMessage& message);
  void OnClosed(absl::Time now, ConnectionId connection,
                const absl::Status& status);
  void OnWorkerEnded(absl::Time now, int64_t worker_id, const WorkerEnd& end);
  // Ends the job: workers are told, then it is over.
  void Fail(absl::Time now, const std::string& reason);
  // How many workers may train together from now on.
  void SetWorkerLimits(absl::Time now, int64_t min_workers,
                       int64_t max_workers);
  // Asked for by a person; the outcome is a failure unless all was done. If
  // there is a place for checkpoints, the workers save the model first; the
  // second time nobody waits for that.
  void StopJob(absl::Time now, const std::string& reason);
  void OnTimer(absl::Time now);
  // When OnTimer wants to be called next.
  absl::Time NextTimer() const;

  // Set once every worker is told and gone.
  std::optional<JobResult> result() const;
  // The job is ending: no worker shall be relaunched. (While workers save the
  // model of a job that is to stop, it is not ending yet.)
  bool ending() const { return ending_.has_value(); }
  // It is ending because all work is done.
  bool succeeding() const {
    return ending_.has_value() && ending_->exit_code != kExitJobFailed;
  }

  // A master before this one has begun the job.
  bool continues() const { return !options_.replay.empty(); }

  TaskProgress progress() const { return tasks_.progress(); }
  // How much of each worker's file of predictions is reported.
  const std::map<int64_t, int64_t>& prediction_bytes() const {
    return tasks_.output_bytes();
  }
  std::optional<EvaluationProgress> evaluation_progress() const {
    return evaluation_.running() ? tasks_.evaluation() : std::nullopt;
  }
  int num_ready_workers() const;
  // Workers of the master before this one that may still come back.
  const std::set<int64_t>& awaited() const { return resumable_; }
  // No smaller id was ever used.
  int64_t next_worker_id() const { return next_worker_id_; }
  // Does the worker have a stream?
  bool IsAttached(int64_t worker_id) const;
  // Of the world that trains; 0 = none.
  int64_t generation() const { return membership_.active_generation(); }
  // Was the crash of this worker counted against the task it held? Then it does
  // not count against the worker.
  bool BlamedOnTask(int64_t worker_id) const {
    return blamed_.count(worker_id) != 0;
  }

 private:
  struct WorkerState {
    int64_t id = 0;
    int64_t pid = 0;
    bool ready = false;
    // Waits for EvaluationDone.
    bool waiting = false;
    bool training_done_sent = false;
    // NoMoreTasks was its last word about training tasks.
    bool no_more_sent = false;
    // It waits for one more task, however many it is thought to hold: what it
    // has used may not be known here yet.
    bool starving = false;
    bool stop_sent = false;
    // It came back from the master before this one.
    bool resumed = false;
    bool leaving = false;
    std::string leaving_reason;
  };
  // A worker that is not there any more. What it held goes back to the queue
  // when it is known which of it is in the model (settled) and whether it
  // crashed (loss).
  struct Gone {
    bool settled = false;
    std::optional<WorkerLoss> loss;
    std::string reason;
    // Then it counts as preempted.
    absl::Time deadline = absl::InfiniteFuture();
  };

  JobController(Options options, TaskManager tasks, JobOutput& output,
                absl::Time now);

  void OnHello(absl::Time now, ConnectionId connection, const v1::Hello& hello);
  void OnReady(absl::Time now, ConnectionId connection, WorkerState& worker,
               const v1::Ready& ready);
  absl::Status LearnShards(const v1::Ready& ready);
  void OnProgress(absl::Time now, const WorkerState& worker,
                  const v1::Progress& progress);
  // What the step's totals say is in the model. Returns the new records.
  int64_t Commit(
      absl::Time now,
      const google::protobuf::RepeatedPtrField<v1::RecordTotal>& totals,
      int64_t step, int64_t generation);
  void OnTaskDone(absl::Time now, const WorkerState& worker,
                  const v1::TaskDone& done);
  void OnEvaluationDue(absl::Time now, WorkerState& worker, int64_t step);
  void OnCheckpointBegin(ConnectionId connection, int64_t step);
  // The end of StopJob.
  void FinishStop();
  void OnCheckpointDone(const v1::CheckpointDone& done);
  // job_controller_world.cc: who trains together.
  void OnWorldMessage(absl::Time now, const WorkerState& worker,
                      const v1::WorkerMessage& message);
  void OnLevel(absl::Time now, const WorkerState& worker,
               const v1::Level& level);
  // Carries out what an event of the membership has decided; `had_level`: there
  // was a trained model before it.
  void Execute(absl::Time now, bool had_level,
               const rendezvous::Membership::Decisions& decisions);
  void Execute(absl::Time now, const rendezvous::MembershipDecision& decision);
  void SendPrepare(const rendezvous::MembershipDecision& decision);
  void SendTo(const std::vector<int64_t>& workers, v1::MasterMessage message);
  std::string CheckpointToRestore() const;
  void Release(absl::Time now, int64_t worker_id);
  void Evict(absl::Time now, int64_t worker_id, WorkerLoss loss,
             const std::string& reason);
  bool IsActive(int64_t worker_id) const;
  void WakeIfData();

  // job_controller_loss.cc: who is gone, why, and what follows.
  void Depart(absl::Time now, int64_t worker_id, std::optional<WorkerLoss> loss,
              const std::string& reason);
  void FinishGone(absl::Time now);
  void LoseWorker(absl::Time now, int64_t worker_id, WorkerLoss loss,
                  const std::string& reason);
  void CutBackToCheckpoint(absl::Time now);
  // Records that need no more work: in the model, predicted or set aside.
  int64_t RecordsDone() const;
  // Tasks are handed out one at a time, because one of those that a crashed
  // worker held is bad and it is not known which.
  bool careful(v1::TaskType type) const;
  void ReportQuarantined();

  // job_controller_resume.cc: going on where another master stopped.
  absl::Status Replay(absl::Time now, const v1::JournalRecord& record,
                      bool tell);
  void BeginResume(absl::Time now);
  // The first worker of that id that comes back, or false.
  bool TakeResumable(int64_t worker_id);
  void OnResumedReady(absl::Time now, ConnectionId connection,
                      const WorkerState& worker, const v1::Ready& ready);
  void JoinWorld(absl::Time now, int64_t worker_id, const std::string& host);
  void EndResumeIfComplete(absl::Time now);
  void EndResume(absl::Time now);
  void Record(const v1::JournalRecord& record) const;
  void RecordGone(int64_t worker_id) const;
  void WatchTasks();

  // Carries out whatever the state calls for; after every event.
  void Advance(absl::Time now);
  void AdvanceEvaluation(absl::Time now);
  void GrantTasks(absl::Time now);
  // At most one.
  bool GrantTask(absl::Time now, ConnectionId connection, WorkerState& worker);
  // It may be given one more task; it holds less than it should as a rule.
  bool HasRoom(int64_t worker_id, v1::TaskType type) const;
  bool WantsMore(int64_t worker_id, v1::TaskType type) const;
  // How many training tasks a worker should hold.
  int TrainingWindow(absl::Time now);
  void SendNoMoreTasks(ConnectionId connection, WorkerState& worker);
  void SendToAll(v1::MasterMessage message);
  // Lets all members go on, as one message among others that all of them hear
  // in the same order.
  void SendEvaluationDone(const v1::EvaluationDone& done);
  void FinishIfDone();
  void SetEnding(const JobResult& result);
  void Stop(ConnectionId connection, WorkerState& worker,
            const std::string& reason, int exit_code);
  bool IsTraining() const;
  // The last model is not on the disk yet: if its worker dies now, it is
  // trained again.
  bool LastCheckpointDue() const;

  Options options_;
  JobOutput& output_;
  // Set by the first worker that is ready.
  bool shards_known_ = false;
  TaskManager tasks_;
  EvaluationService evaluation_;
  std::map<ConnectionId, WorkerState> workers_;
  std::unordered_map<int64_t, ConnectionId> connection_of_;
  rendezvous::Membership membership_;
  // Members of the last world that was level.
  size_t active_size_ = 0;
  RateMeter rate_{absl::Seconds(2)};
  // The last TrainingWindow.
  int training_window_ = 0;
  std::map<int64_t, Gone> gone_;
  // Records of each worker that are in the model, as it has counted them.
  std::unordered_map<int64_t, int64_t> committed_totals_;
  // Nobody has the trained model any more: when all that are gone are
  // explained, the ledger falls back, and what was decided since is done.
  bool cut_back_due_ = false;
  std::vector<rendezvous::MembershipDecision> held_back_;
  // The last Level has just been committed.
  bool just_settled_ = false;
  absl::Duration level_pause_;
  // What is being committed.
  int64_t commit_step_ = 0;
  int64_t commit_generation_ = 0;
  // The newest world in which a step was reported.
  int64_t stepped_generation_ = 0;
  // The members of this world wait for data.
  int64_t idle_generation_ = 0;
  // For members that come late to an evaluation that is over.
  v1::EvaluationDone last_evaluation_;
  // The world and step of the last SendEvaluationDone.
  std::pair<int64_t, int64_t> resumed_ = {-1, -1};
  std::set<int64_t> blamed_;
  int crashes_without_commit_ = 0;
  // Crashes for which no task was set aside (yet).
  int64_t unproven_crashes_ = 0;
  // Until so many records are done, and until the evaluation ends.
  int64_t careful_until_ = 0;
  bool careful_evaluation_ = false;
  // How many of those that were set aside are reported.
  size_t reported_quarantined_ = 0;
  int64_t next_worker_id_ = 0;
  std::set<int64_t> used_ids_;
  bool evaluate_now_sent_ = false;
  // Workers of the master before this one that may still come back.
  std::set<int64_t> resumable_;
  // While those are waited for.
  struct Waiting {
    absl::Time deadline;
    // Members of the last world, by rank, and which of them are back.
    std::vector<int64_t> members;
    std::map<int64_t, std::string> back;
    // Others that got ready meanwhile.
    std::vector<rendezvous::WorldMember> joiners;
  };
  std::optional<Waiting> waiting_;
  std::vector<int64_t> last_members_;
  // Ledgers of checkpoints that are, or may be, on disk; by step.
  std::map<int64_t, v1::Ledger> ledgers_;
  // The ledger to fall back to without any checkpoint.
  v1::Ledger first_ledger_;
  std::string last_checkpoint_error_;
  // The newest step that is saved, or whose save has failed.
  int64_t saved_step_ = -1;
  std::optional<JobResult> ending_;
  // The job is to stop when the model is saved.
  struct Stopping {
    std::string reason;
    // By when the workers must have come to rest.
    absl::Time deadline;
  };
  std::optional<Stopping> stopping_;
};

}  // namespace elasticdl::master
