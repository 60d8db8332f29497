// The master's decisions about one job: which worker gets which task, when to
// evaluate, what to do about a lost worker, when the job is over. Pure: events
// in, calls of WorkerPort and JobObserver out, time as an argument.
// docs/architecture.md has the diagram.
//
// This class passes each event to the class that decides about it and carries
// out the decisions. Attached workers: WorkerRegistry. Worlds: WorldKeeper.
// Lost workers: DepartedWorkers and CrashBlame. Tasks: TaskGranter.
// Checkpoints: CheckpointHistory. Parameter servers: ServerTraining. Restart of
// the master: Resumption.
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
#include "checkpoint_history.h"
#include "checkpoint_search.h"
#include "crash_blame.h"
#include "departed_workers.h"
#include "elasticdl/rendezvous/membership.h"
#include "elasticdl/v1/job.pb.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation.h"
#include "evaluation_rounds.h"
#include "job_output.h"
#include "kept_heirs.h"
#include "kept_states.h"
#include "lane_activities.h"
#include "resumption.h"
#include "server_memory.h"
#include "server_training.h"
#include "task_granter.h"
#include "task_manager.h"
#include "worker_registry.h"
#include "world_change.h"
#include "world_keeper.h"

namespace elasticdl::master {

// How a job ended.
struct JobResult {
  int exit_code = 0;
  std::string message;
};
inline constexpr int kExitJobFailed = 1;
// Done, but some records were quarantined (quarantine).
inline constexpr int kExitRecordsQuarantined = 4;
// It was suspended: a restarted master continues it.
inline constexpr int kExitSuspended = 5;

// The length to which the audit must be truncated before a restarted master
// continues with this journal: it writes the later commits again. Nothing:
// there were no commits.
std::optional<int64_t> AuditBytesToKeep(
    const std::vector<v1::JournalRecord>& replay);

// When a job is stopped: how long its workers may take to finish their step and
// form a last world before they are stopped without a checkpoint.
inline constexpr absl::Duration kStopGrace = absl::Seconds(30);

// How the process of a worker ended, as reported by its pod.
struct WorkerEnd {
  bool crashed = false;
  std::string reason;
};

// Thread-compatible.
class JobController : private ServerTraining::Host {
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
    // Random: another one for each run of a job.
    std::string run;
    // Of a training job.
    rendezvous::MembershipOptions membership;
    // One task in use, one read ahead; of training tasks more when they are
    // short (TrainingWindow).
    int window = 2;
    // The master creates the workers' pods: OnWorkerEnded reports how one
    // ended.
    bool has_pods = true;
    // How long to wait for the exit status of a worker's pod after its stream
    // broke.
    absl::Duration end_grace = absl::Seconds(5);
    // Looks for the checkpoint that a lost model is restored from. The answer
    // comes by OnCheckpointFound, to each query one, in the same order; not
    // before this call has returned.
    std::function<void(CheckpointQuery query)> search_checkpoint;
    // Fences writers of older lineages from the checkpoint directory. May be
    // null.
    std::function<void(const checkpoint::Lineage& lineage)> fence;
    // Learns what servers tell of their memory. Null = nobody does. Must
    // outlive the controller.
    ServerMemory* server_memory = nullptr;
    // Keeps the states of workers, which outlive them. Null = nobody does. Must
    // outlive the controller.
    KeptStates* kept_states = nullptr;
    // Writes a record to the journal, before any message that follows from it
    // is sent. Null = no journal.
    std::function<void(const v1::JournalRecord& record)> record;
    // The journal of the previous master; empty = there was none.
    std::vector<v1::JournalRecord> replay;
    // The journal is incomplete: the workers are further than it says.
    bool replay_incomplete = false;
    // How long the workers of the previous master may take to attach again, and
    // how long attached ones may take to finish their step.
    absl::Duration resume_grace = absl::Seconds(30);
    absl::Duration resume_step_grace = absl::Seconds(30);
  };

  // `port` and `observer` must outlive the controller.
  static absl::StatusOr<std::unique_ptr<JobController>> Create(
      Options options, WorkerPort& port, JobObserver& observer, absl::Time now);

  // Starts the journal, or takes over from the master that has written it.
  // Before any event; not needed without a journal. DATA_LOSS when the journal
  // does not fit the job.
  absl::Status Begin(absl::Time now);
  // Records that replay to the same state as all records so far. Call it
  // between events only.
  std::vector<v1::JournalRecord> StateRecords() const;

  // Another number of parameter servers is asked for: when those that are new
  // have attached, buckets move.
  void ScaleServers(absl::Time now, int servers);
  // The number of servers that was asked for last, or that the job keeps
  // because its model would not fit on fewer.
  int server_target() const { return HasServers() ? servers_->target() : 0; }
  // Parameter servers 0 .. num_servers()-1 must exist.
  int num_servers() const { return HasServers() ? servers_->num_servers() : 0; }
  // Where parameter servers are, for each Welcome from now on.
  void SetServers(v1::Servers addresses) {
    if (HasServers()) servers_->SetAddresses(std::move(addresses));
  }
  // What workers are told, the run's name included.
  const v1::JobSpec& job() const { return options_.job; }

  // ---- events ----
  void OnMessage(absl::Time now, ConnectionId connection,
                 const v1::WorkerMessage& message);
  void OnClosed(absl::Time now, ConnectionId connection,
                const absl::Status& status);
  void OnWorkerEnded(absl::Time now, int64_t worker_id, const WorkerEnd& end);
  // Of parameter servers, see ServerTraining. Only for jobs that have some.
  void OnServerAttached(absl::Time now, int server, int64_t version);
  void OnServerDetached(int server) { servers_->OnDetached(server); }
  bool ServerVersionFits(int server, int64_t version) const {
    return servers_->VersionFits(server, version);
  }
  void RecordPart(const v1::PsPartRecord& record) {
    servers_->RecordPart(record);
  }
  const std::map<int, v1::PsPartRecord>& parts() const {
    return servers_->parts();
  }
  void OnPartChange(const PartChange& change) { observer_.OnPart(change); }
  void OnServerTelemetry(absl::Time now, int server,
                         const v1::Telemetry& telemetry) {
    if (options_.server_memory != nullptr) {
      options_.server_memory->OnTelemetry(server, telemetry);
    }
    if (HasServers()) servers_->OnTelemetry(now, server);
    observer_.OnTelemetry(now, /*server=*/true, server, telemetry);
  }
  // Its process has no stream any more.
  void OnServerStreamClosed(absl::Time now, int server) {
    if (HasServers()) servers_->OnStreamClosed(now, server);
  }
  void OnServerMessage(absl::Time now, int server,
                       const v1::WorkerMessage& message);
  // The answer to Options::search_checkpoint.
  void OnCheckpointFound(absl::Time now, const CheckpointAnswer& answer);
  // The pod of this worker is deleted on purpose, for this reason: when it
  // leaves, that is why.
  void NoteRemoved(int64_t worker_id, const std::string& reason);
  // Fails the job: stops the workers and ends it.
  void Fail(absl::Time now, const std::string& reason) override;
  // Stops the job at a user's request; the outcome is a failure unless all work
  // was done. If there is a checkpoint directory, the workers save the model
  // first; a second call does not wait for that. With `suspend`, the journal
  // gets no outcome: a master that reads it continues from the newest
  // checkpoint.
  void StopJob(absl::Time now, const std::string& reason, bool suspend = false);
  // There are ready workers, and all of them have announced that they leave.
  // Workers that the master removes do not count.
  bool AllLeaving() const;
  void OnTimer(absl::Time now);
  // When OnTimer wants to be called next.
  absl::Time NextTimer() const;

  // What the job is waiting for, for people: "2 workers load the model". Empty
  // while it processes data.
  std::string Activity() const;

  // Set once every worker is told and gone.
  std::optional<JobResult> result() const;
  // The result when nobody waits for the rest: `missing` says what is not
  // there.
  JobResult ResultWithout(const std::string& missing) const;
  // The job is ending: no worker is relaunched. (While workers save the model
  // of a job that is being stopped, it is not ending yet.)
  bool ending() const { return ending_.has_value(); }
  // It is ending because all work is done.
  bool succeeding() const {
    return ending_.has_value() && ending_->exit_code != kExitJobFailed;
  }

  // An earlier master has started the job.
  bool continues() const { return !options_.replay.empty(); }

  TaskProgress progress() const { return tasks_.progress(); }
  LedgerCounts ledger_counts() const { return tasks_.ledger_counts(); }
  // The reported length of each worker's prediction file.
  const std::map<int64_t, int64_t>& prediction_bytes() const {
    return tasks_.output_bytes();
  }
  std::optional<EvaluationProgress> evaluation_progress() const {
    return evaluation_.running() ? tasks_.evaluation() : std::nullopt;
  }
  int num_ready_workers() const { return registry_.num_ready(); }
  // Workers of the previous master that may still attach again.
  const std::set<int64_t>& awaited() const { return resumption_.awaited(); }
  // No smaller id was ever used.
  int64_t next_worker_id() const { return registry_.next_id(); }
  // Does the worker have a stream?
  // Some worker has the model of the job's newest step.
  bool HasReplica() const { return world_.membership().HasLevelMember(); }
  bool IsAttached(int64_t worker_id) const {
    return registry_.IsAttached(worker_id);
  }
  // Of the world that trains; 0 = none.
  int64_t generation() const { return world_.generation(); }
  // The worker of this stream.
  std::optional<int64_t> WorkerAt(ConnectionId connection) const;
  // Was the crash of this worker counted against the task it held, or against
  // the state that it took over? Then it does not count against the slot.
  bool BlamedOnOther(int64_t worker_id) const {
    return blame_.IsTaskBlamed(worker_id) || heirs_.IsStateBlamed(worker_id);
  }

 private:
  JobController(Options options, TaskManager tasks, WorkerPort& port,
                JobObserver& observer, absl::Time now);

  void OnTelemetry(absl::Time now, ConnectionId connection, int64_t worker_id,
                   const v1::Telemetry& telemetry);
  void OnHello(absl::Time now, ConnectionId connection, const v1::Hello& hello);
  void OnReady(absl::Time now, ConnectionId connection, Worker& worker,
               const v1::Ready& ready);
  absl::Status LearnShards(const v1::Ready& ready);
  void OnProgress(absl::Time now, const Worker& worker,
                  const v1::Progress& progress);
  // What the step's totals say is in the model. Returns the new records.
  int64_t Commit(
      absl::Time now,
      const google::protobuf::RepeatedPtrField<v1::RecordTotal>& totals,
      int64_t step, int64_t generation);
  void OnTaskDone(absl::Time now, const Worker& worker,
                  const v1::TaskDone& done);
  void OnEvaluationDue(absl::Time now, Worker& worker,
                       const v1::EvaluationDue& due);
  void OnCheckpointDone(const v1::CheckpointDone& done);
  // ServerTraining::Host
  void BeginCommit(int64_t step) override;
  void EndCommit(absl::Time now, int64_t step, int64_t records) override;
  bool HasTrained() const override {
    return tasks_.step() > first_ledger_.step();
  }
  bool IsStopping() const override { return stopping_.has_value(); }
  void Grant(absl::Time now) override { granter_.Grant(now, WorldForTasks()); }
  void SendLedger(ConnectionId connection,
                  const v1::CheckpointBegin& begin) override;
  void EvictCrashed(absl::Time now, int64_t worker_id,
                    const std::string& reason) override;
  // Workers wait for something that is not their fault.
  bool TasksStandStill() const;
  // job_controller_world.cc: who trains together.
  void OnWorldMessage(absl::Time now, const Worker& worker,
                      const v1::WorkerMessage& message);
  void OnNcclFailure(absl::Time now, const v1::WorldFailed& failed);
  void OnLevel(absl::Time now, const Worker& worker, const v1::Level& level);
  void OnCaughtUp(absl::Time now, const Worker& worker,
                  const v1::CaughtUp& caught_up);
  // Carries out what an event of the membership has decided; `had_level`: there
  // was a trained model before it.
  void Execute(absl::Time now, bool had_level,
               const rendezvous::Membership::Decisions& decisions);
  void Execute(absl::Time now, const rendezvous::MembershipDecision& decision);
  // Sends it, or holds it back until it is known where a cold world begins.
  void Prepare(absl::Time now, const rendezvous::MembershipDecision& decision);
  void SendPrepare(absl::Time now,
                   const rendezvous::MembershipDecision& decision);
  void Release(absl::Time now, int64_t worker_id) override;
  void Evict(absl::Time now, int64_t worker_id, WorkerLoss loss,
             const std::string& reason);
  void WakeIfData();

  // job_controller_lanes.cc: what is shown of workers besides training.
  void TellActivities(absl::Time now);
  std::vector<int64_t> Evaluators() const;

  // job_controller_loss.cc: lost workers and rollbacks.
  void Depart(absl::Time now, int64_t worker_id, std::optional<WorkerLoss> loss,
              const std::string& reason);
  // Returns the tasks of closed losses; then rolls back, if a rollback is due.
  void FinishDeparted(absl::Time now);
  void LoseWorker(absl::Time now, int64_t worker_id, WorkerLoss loss,
                  const std::string& reason);
  // A worker could not restore the checkpoint that the ledger is at: if it is
  // damaged, an older one is looked for.
  void DoubtCheckpoint(absl::Time now, int64_t worker_id,
                       const std::string& reason);
  // It is whole: the worker that cannot read it is evicted.
  void TrustCheckpoint(absl::Time now);
  // Starts the search for the checkpoint that the ledger is rolled back to.
  void SearchCheckpoint(int64_t step, bool at_base);
  // There is no version of the job's own. False: the job has failed.
  bool CutBackToStart(absl::Time now, const CheckpointAnswer& answer);
  bool CutBackTo(absl::Time now, const v1::Ledger& ledger,
                 const checkpoint::Version* version);
  // A cold world can be restored from the step of the ledger, as far as that is
  // known without reading the disk.
  bool KnowsRestorePoint() const;
  // Prepares that were held back are sent.
  void EndCutBack(absl::Time now);
  // Records that need no more work: in the model, predicted or quarantined.
  int64_t RecordsDone() const;
  void ReportQuarantined();

  // job_controller_kept.cc: states that lost workers have left.
  // The last worker that had the model is lost. False: nothing is left of it.
  bool BeginHeritage(absl::Time now);
  // Chooses a state when its owners have ended, and commits what is in it.
  void AdvanceHeritage(absl::Time now);
  // Whoever left something may still run, and change it.
  bool WaitForOrphans(absl::Time now);
  // The newest state of those that have ended; or why there is none.
  absl::StatusOr<KeptStates::Kept> NewestKept() const;
  void EndHeritage();
  // Back to a checkpoint, or to what the job began with.
  void EndWithoutHeir(absl::Time now);
  // The same, and tells it.
  void GiveUpHeritage(absl::Time now, const std::string& reason);
  // What is kept of workers that are gone.
  std::vector<int64_t> Orphans() const;
  void DropOrphans(std::optional<int64_t> except = std::nullopt);
  bool ChoosesHeritage() const {
    return heritage_.has_value() && !heritage_->chosen.has_value();
  }

  // job_controller_resume.cc: continuing after a restart of the master.
  absl::Status Replay(absl::Time now, const v1::JournalRecord& record,
                      bool tell);
  absl::Status ReplayState(absl::Time now,
                           const v1::JournalRecord::State& state);
  void ReplayDeparted(int64_t worker_id);
  v1::JournalRecord StartRecord() const;
  // The job begins with this, and not with what it was to begin with.
  absl::Status SetStart(const v1::JournalRecord::Start& start, bool tell);
  void BeginResume(absl::Time now);
  void OnResumedReady(absl::Time now, ConnectionId connection,
                      const Worker& worker, const v1::Ready& ready);
  void JoinWorld(absl::Time now, int64_t worker_id, const std::string& host);
  void EndResumeIfComplete(absl::Time now);
  void OnResumeDeadline(absl::Time now);
  void EndResume(absl::Time now);
  void Record(const v1::JournalRecord& record) const override;
  void RecordGone(int64_t worker_id);
  void AddDeparted(int64_t worker_id,
                   const DepartedWorkers::Departed& departed);
  void WatchTasks();

  // Does everything that the new state allows; called after every event.
  void Advance(absl::Time now);
  // What follows when this worker has got the model.
  void AdvanceMember(absl::Time now, ConnectionId connection);
  // Says that training stops before its data is used up, when that happens.
  void TellStop();
  bool StopHasDeadline() const;
  // A member says that it has entered the world of this generation.
  void NoteEntered(int64_t generation);
  absl::Time MembershipTimer() const;
  // The members of the world run no steps until the master sends a message.
  bool AtRest() const;
  void AdvanceEvaluation(absl::Time now);
  TaskGranter::World WorldForTasks() const;
  EvaluationRounds::World WorldForEvaluation() const;
  // job_controller_end.cc: how a job ends.
  void FinishIfDone();
  // The end of StopJob.
  void FinishStop();
  void SetEnding(const JobResult& result);
  // Includes whether the last checkpoint is saved, as known now.
  void RecordOutcome();
  // The result of a job is a failure when its last checkpoint is not saved.
  JobResult WithLastCheckpoint(JobResult result) const;
  // For the user who stopped the job: what was saved and how to continue.
  std::string SavedAtStop() const;
  void Stop(ConnectionId connection, Worker& worker, const std::string& reason,
            int exit_code);
  bool IsTraining() const;
  // The model is on parameter servers.
  bool HasServers() const { return servers_ != nullptr; }
  // Workers train one model together, as members of worlds.
  bool HasWorld() const;
  rendezvous::Membership& membership() { return world_.membership(); }
  const rendezvous::Membership& membership() const {
    return world_.membership();
  }
  // The last model is not on the disk yet: if its worker dies now, it is
  // trained again.
  bool LastCheckpointDue() const;

  Options options_;
  WorkerPort& port_;
  JobObserver& observer_;
  // Set by the first worker that is ready.
  bool shards_known_ = false;
  TaskManager tasks_;
  EvaluationService evaluation_;
  WorkerRegistry registry_;
  WorldKeeper world_;
  DepartedWorkers departed_;
  CrashBlame blame_;
  KeptHeirs heirs_;
  TaskGranter granter_;
  EvaluationRounds rounds_;
  LaneActivities activities_;
  // Records of each worker that are in the model, as it has counted them.
  std::unordered_map<int64_t, int64_t> committed_totals_;
  // No worker has the trained model any more: when all departed workers are
  // explained, the ledger is rolled back and the decisions made since are
  // carried out.
  bool cut_back_due_ = false;
  // The checkpoint for that is being looked for.
  bool searching_ = false;
  // Nobody has the trained model any more, but it is in memory that lost
  // workers have left.
  struct Heritage {
    // Until then they may end by themselves, then they are killed; by the
    // second deadline they must have ended.
    absl::Time deadline;
    bool kills = false;
    // Where it is. The ledger is that of its step.
    std::optional<KeptStates::Kept> chosen;
    // Worlds that were to begin with it.
    int worlds = 0;
  };
  std::optional<Heritage> heritage_;
  // Prepares, until the ledger is where their worlds begin.
  std::vector<rendezvous::MembershipDecision> held_back_;
  // The last Level has just been committed.
  bool just_settled_ = false;
  absl::Duration level_pause_;
  // What is being committed.
  int64_t commit_step_ = 0;
  int64_t commit_generation_ = 0;
  // How many of the quarantined ranges are reported.
  size_t reported_quarantined_ = 0;
  Resumption resumption_;
  // For StateRecords.
  std::optional<v1::Ready> shards_;
  std::set<int64_t> not_gone_;
  CheckpointHistory checkpoints_;
  // Null: the job has no parameter servers.
  std::unique_ptr<ServerTraining> servers_;
  // The ledger for a rollback without any checkpoint.
  v1::Ledger first_ledger_;
  // The checkpoint that the ledger is at could not be restored; until another
  // is found.
  struct BadCheckpoint {
    // Empty: it is known to be damaged.
    std::string path;
    int64_t worker_id = -1;
    std::string reason;
  };
  std::optional<BadCheckpoint> bad_checkpoint_;
  // How many workers in a row could not read this one, which is whole.
  struct Unreadable {
    std::string path;
    int workers = 0;
  };
  Unreadable unreadable_;
  // Why training stops early, as it was told.
  std::string told_stop_;
  std::optional<JobResult> ending_;
  // The job stops when the model is saved.
  struct Stopping {
    std::string reason;
    // When the workers must have stopped training.
    absl::Time deadline;
    bool suspend = false;
    // They have: members have entered a last world. If it breaks, or if one of
    // them has to be given the model first, membership limits the rest.
    bool entered_last_world = false;
  };
  std::optional<Stopping> stopping_;
  // It ends without an outcome.
  bool suspended_ = false;
};

}  // namespace elasticdl::master
