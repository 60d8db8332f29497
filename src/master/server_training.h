// Training with parameter servers: which pushes are in the model, which
// gradients make up a version, when the model is saved, and which server holds
// which bucket meanwhile. There are no worlds: each worker trains its own
// tasks, and what it has pushed to every server is committed. A worker that
// dies between a push and its report costs nothing: its successor's push has
// the same name, and servers that have it ignore it
// (docs/design/0006-parameter-servers.md).
//
// Pure, like the controller that owns it: events in, messages out, time as an
// argument. VersionRounds, ServerCheckpoints and BucketMoves are its state
// machines; this class keeps them out of each other's way:
//
//   while               no version  no checkpoint  no step of    tasks have
//                       is made     begins         a move begins no deadline
//   ------------------  ----------  -------------  ------------- -----------
//   a version is open   x           x              x             x
//   the model is read   x           x              x             x
//   workers pause       x           x              x
//   a move's step       x (servers  x (buckets are               x
//     is open           drop what   on no server)
//                       is staged)
//   a server is away                                             x
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "bucket_moves.h"
#include "checkpoint_history.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "job_output.h"
#include "server_checkpoints.h"
#include "server_memory.h"
#include "task_manager.h"
#include "version_rounds.h"
#include "worker_registry.h"

namespace elasticdl::master {

// Thread-compatible.
class ServerTraining {
 public:
  struct Options {
    // Pushes are applied on arrival; else versions are made of staged
    // gradients.
    bool use_async = true;
    VersionRounds::Options versions;
    ServerCheckpoints::Options saves;
    int64_t minibatch_size = 1;
    // The version-V folder that the servers begin with; empty = none.
    std::string restore_from;
    int64_t restore_step = 0;
    // What the servers tell of their memory. Null = nobody knows. Must outlive
    // this.
    const ServerMemory* memory = nullptr;
  };
  // What it needs of the job. All must outlive it.
  struct Job {
    TaskManager& tasks;
    WorkerRegistry& registry;
    CheckpointHistory& checkpoints;
    WorkerPort& port;
    JobObserver& observer;
  };
  // What only the controller can do.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void Record(const v1::JournalRecord& record) const = 0;
    // The commits that follow belong to this step, for the journal.
    virtual void BeginCommit(int64_t step) = 0;
    // This many records are in the model, which is at this step now.
    virtual void EndCommit(absl::Time now, int64_t step, int64_t records) = 0;
    // Something was trained since the job began.
    virtual bool HasTrained() const = 0;
    // The job is being stopped.
    virtual bool IsStopping() const = 0;
    virtual void Grant(absl::Time now) = 0;
    // The worker gets the ledger of this step for its checkpoint.
    virtual void SendLedger(ConnectionId connection,
                            const v1::CheckpointBegin& begin) = 0;
    virtual void Release(absl::Time now, int64_t worker_id) = 0;
    virtual void EvictCrashed(absl::Time now, int64_t worker_id,
                              const std::string& reason) = 0;
    virtual void Fail(absl::Time now, const std::string& reason) = 0;
  };

  ServerTraining(const Options& options, const Job& job, Host& host,
                 absl::Time now);

  // ---- servers ----
  // Asks for another number of servers: when those that are new have attached,
  // buckets move. False: nothing changes.
  bool Scale(int servers);
  // The number of servers that was asked for last, or that the job keeps
  // because its model would not fit on fewer.
  int target() const { return moves_.target(); }
  // Servers 0 .. num_servers()-1 must exist.
  int num_servers() const { return moves_.servers(); }
  // Where they are, for each Welcome from now on.
  void SetAddresses(v1::Servers addresses) {
    addresses_ = std::move(addresses);
  }
  // A server has come (back) with this version of the model, 0 for none. True:
  // something may follow.
  bool OnAttached(absl::Time now, int server, int64_t version);
  // Its stream is broken.
  void OnDetached(int server);
  // Does a server that comes back with this version have what it acknowledged?
  bool VersionFits(int server, int64_t version) const;
  // True: something may follow.
  bool OnMessage(absl::Time now, int server, const v1::WorkerMessage& message);
  // --ps_backup: who has which part of the model, for a master after this one;
  // what this one and those before have recorded.
  void RecordPart(const v1::PsPartRecord& record);
  const std::map<int, v1::PsPartRecord>& parts() const { return parts_; }
  // One that holds a part of the model and has no stream.
  std::optional<int> Missing() const;

  // ---- workers ----
  // One worker restores the servers from the checkpoint; the others wait for
  // it.
  void Welcome(int64_t worker_id, v1::Welcome& welcome);
  // Asynchronous: every server has these records of the worker. `known`: how
  // many of its records were committed before.
  void OnPushed(absl::Time now, int64_t worker_id, const v1::Progress& progress,
                int64_t& known);
  // Synchronous: every server has staged this gradient.
  void OnStaged(int64_t worker_id, const v1::Staged& staged);
  void OnPaused(int64_t worker_id, int64_t number) {
    saves_.OnPaused(worker_id, number);
  }
  // The worker has the model that it was told to save; it gets the ledger.
  void OnModelRead(absl::Time now, ConnectionId connection, int64_t worker_id,
                   const v1::CheckpointBegin& begin);
  // The checkpoint of this step is written, or cannot be.
  void OnSaved(absl::Time now, int64_t worker_id, int64_t step);
  // It pushes nothing any more.
  void OnLeaving(int64_t worker_id) { versions_.Drop(worker_id); }
  void OnLost(absl::Time now, int64_t worker_id);
  void OnQuarantined(const v1::LedgerRange& range) {
    saves_.OnQuarantined(range);
  }

  // ---- time and state ----
  // Does everything that the new state allows.
  void Advance(absl::Time now);
  // The same for a job that is being stopped: it saves its model first. False:
  // that is done, or no worker can do it.
  bool AdvanceStop(absl::Time now);
  void SendTrainingDone();
  void OnTimer(absl::Time now);
  // While the job trains: when Advance wants to be called next.
  absl::Time NextMove() const { return next_move_; }
  // When OnTimer wants to be called next.
  absl::Time NextTimer() const;

  // A server's process has told how it is, as it does every second unless its
  // state is locked: while it waits for a disk that hangs, say. It answers the
  // master all the same, so nobody else notices.
  void OnTelemetry(absl::Time now, int server);
  void OnStreamClosed(absl::Time now, int server);

  // Nobody may get new training data: the model is about to be saved.
  bool holds_training() const { return saves_.holds_training(); }
  // A worker reads or writes the model.
  bool IsSaving() const {
    return saves_.state() == ServerCheckpoints::State::kSaving ||
           saves_.writer() >= 0;
  }
  // No worker computes or pushes anything.
  bool AtRest() const;
  // Workers wait for something that is not their fault: a lost server, a
  // version that a server has not applied, a model that is being read.
  bool StandsStill() const;
  void NoteStuck(absl::Time now);
  // This one does: for others that have not come so far, for a model that is
  // being restored.
  bool IsExcused(int64_t worker_id);

  // ---- restart of the master ----
  void SaveState(v1::JournalRecord::State& state) const;
  void LoadState(const v1::JournalRecord::State& state);
  void Replay(const v1::JournalRecord& record);
  // All records are replayed.
  void Resume(absl::Time now);

 private:
  // ---- server_training.cc ----
  int64_t CountMinibatches(const std::vector<CommittedRange>& ranges) const;
  // The first commit of the job is told as a first step, too.
  void TellStep(bool first, const v1::Progress& progress, int64_t records);
  // Makes the next version if it is complete.
  void AdvanceVersions(absl::Time now);
  // All records of these gradients are in the model.
  void CommitVersion(absl::Time now,
                     const std::vector<VersionRounds::Gradient>& gradients);
  void OnCommitted(absl::Time now);
  void SendCommit(int server);
  // Workers whose staged gradient is too old compute it again when every server
  // has the newest version.
  void SendStale();
  void SendPushResult(int64_t worker_id, const v1::LedgerRange& range,
                      int64_t version);
  // The servers get the model of a checkpoint, and nothing is trained yet.
  bool IsRestoring() const;
  // ---- server_training_move.cc ----
  void AdvanceMoves(absl::Time now);
  void KeepServersIfNeeded();
  void SendStep(int server);
  bool OnMoved(absl::Time now, int server, const v1::ServerMoved& moved);
  void RecordMoves();
  // ---- server_training_save.cc ----
  void AdvanceSave(absl::Time now);
  ServerCheckpoints::When SaveMoment() const;
  // All attached workers want to leave.
  bool NobodyStays() const;
  void BeginSave(absl::Time now);
  // Releases the leavers, except the one that saves the model.
  void AdvanceLeavers(absl::Time now);
  // The job is being stopped, and its model has been read.
  bool BrokenOff() const;
  void CancelSave(absl::Time now);
  void SendResume(absl::Time now);

  const Options options_;
  TaskManager& tasks_;
  WorkerRegistry& registry_;
  CheckpointHistory& checkpoints_;
  WorkerPort& port_;
  JobObserver& observer_;
  Host& host_;
  v1::Servers addresses_;
  VersionRounds versions_;
  // Contributors to the open version; they are informed when every server has
  // it.
  std::vector<VersionRounds::Gradient> in_open_version_;
  std::vector<VersionRounds::Gradient> stale_;
  ServerCheckpoints saves_;
  BucketMoves moves_;
  // When its next step may begin.
  absl::Time next_move_ = absl::InfiniteFuture();
  // The last version before the last step.
  int64_t moved_at_version_ = -1;
  // The version that each server must have when it attaches: every push that
  // was committed before its stream broke.
  std::map<int, int64_t> least_version_;
  // Servers that hold a part of the model and have no stream.
  std::set<int> away_;
  // Those that can be reached.
  std::set<int> there_;
  // Processes of servers: when each has told how it is, and those that should
  // have done so long ago.
  std::map<int, absl::Time> told_;
  std::set<int> stuck_;
  std::map<int, v1::PsPartRecord> parts_;
  // The worker that restores the servers from the job's checkpoint; -1 = none.
  int64_t restorer_ = -1;
  // How often it was overdue.
  int restorer_overdue_ = 0;
  // When the worker that reads the model for a checkpoint must be done.
  absl::Time read_deadline_ = absl::InfiniteFuture();
};

}  // namespace elasticdl::master
