#include "job_controller.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {

bool JobController::IsTraining() const {
  return options_.job.job_type() == v1::TRAINING_ONLY ||
         options_.job.job_type() == v1::TRAINING_WITH_EVALUATION;
}

bool JobController::HasWorld() const { return IsTraining() && !HasServers(); }

bool JobController::LastCheckpointDue() const {
  return IsTraining() && !options_.job.checkpoint_dir().empty() &&
         tasks_.TrainingDone() && checkpoints_.settled_step() < tasks_.step();
}

void JobController::OnMessage(absl::Time now, ConnectionId connection,
                              const v1::WorkerMessage& message) {
  if (message.has_hello()) {
    const bool known = registry_.IsReachable(message.hello().worker_id());
    OnHello(now, connection, message.hello());
    // Nothing follows from a worker that is not ready yet.
    if (known || message.hello().resuming()) Advance(now);
    return;
  }
  Worker* const found = registry_.Find(connection);
  // A stream that was fenced, or that never said Hello.
  if (found == nullptr) {
    port_.Close(connection,
                absl::FailedPreconditionError("not a worker of this job"));
    return;
  }
  Worker& worker = *found;
  if (message.has_telemetry()) {
    return OnTelemetry(now, connection, worker.id, message.telemetry());
  }
  // Nothing follows from it either.
  if (message.has_histograms()) {
    if (job().tensorboard_histograms() <= 0) return;
    return observer_.OnHistograms(message.histograms());
  }
  switch (message.message_case()) {
    case v1::WorkerMessage::kReady: {
      // It gets tasks when its world is level. Thousands may start at once.
      const bool waits = HasWorld() && shards_known_ && !worker.resumed &&
                         !stopping_.has_value();
      OnReady(now, connection, worker, message.ready());
      if (waits) return;
      break;
    }
    case v1::WorkerMessage::kProgress:
      OnProgress(now, worker, message.progress());
      break;
    case v1::WorkerMessage::kTaskDone:
      OnTaskDone(now, worker, message.task_done());
      break;
    case v1::WorkerMessage::kEvaluationDue:
      OnEvaluationDue(now, worker, message.evaluation_due());
      break;
    case v1::WorkerMessage::kCheckpointBegin:
      if (HasServers()) {
        servers_->OnModelRead(now, connection, worker.id,
                              message.checkpoint_begin());
      } else {
        SendLedger(connection, message.checkpoint_begin());
      }
      break;
    case v1::WorkerMessage::kCheckpointDone:
      if (HasServers()) {
        servers_->OnSaved(now, worker.id, message.checkpoint_done().step());
      }
      activities_.OnSaved(worker.id, message.checkpoint_done().step());
      OnCheckpointDone(message.checkpoint_done());
      break;
    case v1::WorkerMessage::kStopTraining:
      tasks_.StopTraining(message.stop_training().reason());
      break;
    case v1::WorkerMessage::kFatal:
      // What it was doing was cut off: that is no failure.
      if (worker.stop_sent) break;
      Fail(now,
           absl::StrCat("worker ", worker.id, ": ", message.fatal().message()));
      break;
    case v1::WorkerMessage::kLeaving: {
      worker.leaving = true;
      worker.leaving_reason = message.leaving().reason();
      if (HasServers() && worker.ready && !resumption_.waiting()) {
        // It may have to save the model first.
        servers_->OnLeaving(worker.id);
        break;
      }
      if (!HasWorld()) {
        Release(now, worker.id);
        break;
      }
      const bool had_level = membership().HasLevelMember();
      Execute(now, had_level, membership().Leave(now, worker.id));
      break;
    }
    case v1::WorkerMessage::kStarving:
      worker.starving = true;
      worker.no_more_sent = false;
      break;
    case v1::WorkerMessage::kStuck:
      Evict(now, worker.id, WorkerLoss::kCrashed,
            absl::StrCat("stuck in ", message.stuck().where(), " for ",
                         absl::FormatDuration(absl::Trunc(
                             absl::Seconds(message.stuck().seconds()),
                             absl::Milliseconds(100))),
                         " (--step_timeout)"));
      break;
    case v1::WorkerMessage::kPaused:
      if (HasServers()) {
        servers_->OnPaused(worker.id, message.paused().number());
      }
      break;
    case v1::WorkerMessage::kStaged:
      if (HasServers()) servers_->OnStaged(worker.id, message.staged());
      break;
    case v1::WorkerMessage::kOffer:
    case v1::WorkerMessage::kConnected:
    case v1::WorkerMessage::kLevel:
    case v1::WorkerMessage::kCaughtUp:
    case v1::WorkerMessage::kLoading:
    case v1::WorkerMessage::kWorldFailed:
    case v1::WorkerMessage::kIdle:
    case v1::WorkerMessage::kSaved:
      OnWorldMessage(now, worker, message);
      // Thousands of them form a world, and until it is level nothing follows
      // for the tasks.
      if (message.has_offer() || message.has_connected() ||
          message.has_loading()) {
        return;
      }
      if (message.has_caught_up()) return AdvanceMember(now, connection);
      break;
    case v1::WorkerMessage::kHello:
    case v1::WorkerMessage::kServerHello:
    case v1::WorkerMessage::kServerCommitted:
    case v1::WorkerMessage::kServerMoved:
    case v1::WorkerMessage::kPartState:
    case v1::WorkerMessage::kTelemetry:
    case v1::WorkerMessage::kHistograms:
    case v1::WorkerMessage::kPrepareAgain:
    case v1::WorkerMessage::kPong:
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      LogWarning("worker ", worker.id, " sent an unknown message");
      break;
  }
  Advance(now);
  TellActivities(now);
}

// Nothing follows from it.
void JobController::OnTelemetry(absl::Time now, ConnectionId connection,
                                int64_t worker_id,
                                const v1::Telemetry& telemetry) {
  observer_.OnTelemetry(now, /*server=*/false, worker_id, telemetry);
  if (!telemetry.has_spans()) return;
  v1::MasterMessage message;
  v1::TraceEcho& echo = *message.mutable_trace_echo();
  echo.set_sent(telemetry.spans().sent());
  echo.set_received(absl::ToUnixNanos(now));
  port_.Send({connection}, std::move(message));
}

void JobController::OnHello(absl::Time now, ConnectionId connection,
                            const v1::Hello& hello) {
  Worker worker;
  worker.id = hello.worker_id();
  worker.pid = hello.pid();
  worker.resumed = hello.resuming();
  if (worker.resumed && !resumption_.Take(worker.id)) {
    const std::string reason =
        absl::StrCat("worker ", worker.id, " was evicted meanwhile");
    port_.Close(connection, absl::FailedPreconditionError(reason));
    // It would exit with an error of its own, which would count against its
    // slot. It did nothing wrong.
    port_.KillWorker(worker.id, reason);
    return;
  }
  // The same worker on a new stream: whatever the old one still says is stale.
  if (registry_.IsReachable(worker.id)) {
    const ConnectionId old = registry_.ConnectionOf(worker.id);
    port_.Close(old, absl::FailedPreconditionError(
                         absl::StrCat("worker ", worker.id, " came back")));
    registry_.Remove(old);
    Depart(now, worker.id, WorkerLoss::kPreempted, "came back");
  }
  worker.id = registry_.TakeId(worker.id, worker.resumed);
  not_gone_.insert(worker.id);
  v1::JournalRecord taken;
  taken.set_worker(worker.id);
  Record(taken);
  // While workers come back to a new master, the model is not known to be
  // there.
  const bool may_save = worker.resumed && resumption_.waiting();
  if (ending_.has_value() || (stopping_.has_value() && !may_save)) {
    Stop(connection, worker, "the job is ending", 0);
    port_.Close(connection, absl::OkStatus());
    return;
  }
  v1::MasterMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_worker_id(worker.id);
  *welcome.mutable_job() = options_.job;
  if (!IsTraining()) {
    welcome.set_restore_from(options_.restore_from);
  } else if (HasServers()) {
    servers_->Welcome(worker.id, welcome);
  } else if (worker.resumed) {
    // It is as warm as can be.
  } else if (const auto sample = tasks_.Sample();
             sample.has_value() && !blame_.suspects_tasks()) {
    *welcome.mutable_warm_up() = *sample;
  }
  registry_.Add(connection, worker);
  port_.Send({connection}, std::move(message));
}

void JobController::OnReady(absl::Time now, ConnectionId connection,
                            Worker& worker, const v1::Ready& ready) {
  // Its tasks would be sent, and trained, a second time.
  if (worker.ready) return;
  worker.ready = true;
  worker.nccl = ready.nccl();
  if (stopping_.has_value() && !resumption_.waiting()) {
    Stop(connection, worker, stopping_->reason, 0);
    return;
  }
  observer_.OnWorkerReady(worker.id, worker.pid, ready.step());
  if (ready.has_model()) observer_.OnModel(ready.model());
  if (options_.kept_states != nullptr && ready.has_kept_fd()) {
    options_.kept_states->Keep(worker.id, worker.pid, ready.kept_fd());
  }
  if (!shards_known_) {
    if (!ready.note().empty()) observer_.OnMessage(ready.note());
    const absl::Status status = LearnShards(ready);
    if (!status.ok()) {
      Fail(now, std::string(status.message()));
      return;
    }
  }
  if (worker.resumed) {
    OnResumedReady(now, connection, worker, ready);
  } else if (HasWorld()) {
    JoinWorld(now, worker.id, ready.host());
  }
}

void JobController::OnProgress(absl::Time now, const Worker& worker,
                               const v1::Progress& progress) {
  if (HasServers()) {
    return servers_->OnPushed(now, worker.id, progress,
                              committed_totals_[worker.id]);
  }
  const absl::Status active =
      membership().CheckActive(worker.id, progress.generation());
  if (!active.ok()) {
    LogInfo("report of worker ", worker.id, " refused: ", active.message());
    return;
  }
  if (world_.OnStep(progress.generation())) {
    observer_.OnFirstStep(progress.generation(), progress.step());
  }
  const int64_t records =
      Commit(now, progress.totals(), progress.step(), progress.generation());
  observer_.OnProgress(progress, records);
}

int64_t JobController::Commit(
    absl::Time now,
    const google::protobuf::RepeatedPtrField<v1::RecordTotal>& totals,
    int64_t step, int64_t generation) {
  commit_step_ = step;
  commit_generation_ = generation;
  int64_t records = 0;
  for (const v1::RecordTotal& total : totals) {
    // Settled long ago; the members just have not forgotten it yet.
    if (!registry_.IsReachable(total.worker_id()) &&
        !departed_.Contains(total.worker_id())) {
      continue;
    }
    int64_t& known = committed_totals_[total.worker_id()];
    if (total.records() == known) continue;
    const absl::StatusOr<std::vector<CommittedRange>> ranges =
        tasks_.CommitNext(now, total.worker_id(), total.records() - known);
    if (!ranges.ok()) {
      // Model and ledger would no longer agree: nothing may be built on that.
      Fail(now, absl::StrCat("the ledger of step ", step,
                             " is wrong: ", ranges.status().message()));
      return records;
    }
    records += total.records() - known;
    known = total.records();
    for (const CommittedRange& range : *ranges) {
      observer_.OnCommit(range, step, generation);
    }
  }
  if (records > 0) blame_.OnCommit();
  granter_.OnCommit(now, records);
  heirs_.OnCommit(step);
  const absl::Status status = tasks_.SetStep(step);
  if (!status.ok()) LogWarning(status.message());
  return records;
}

void JobController::BeginCommit(int64_t step) {
  commit_step_ = step;
  commit_generation_ = 0;
}

void JobController::EndCommit(absl::Time now, int64_t step, int64_t records) {
  blame_.OnCommit();
  granter_.OnCommit(now, records);
  const absl::Status status = tasks_.SetStep(step);
  if (!status.ok()) LogWarning(status.message());
}

void JobController::ScaleServers(absl::Time now, int servers) {
  if (HasServers() && servers_->Scale(servers)) Advance(now);
}

void JobController::OnServerAttached(absl::Time now, int server,
                                     int64_t version) {
  if (servers_->OnAttached(now, server, version)) Advance(now);
}

void JobController::OnServerMessage(absl::Time now, int server,
                                    const v1::WorkerMessage& message) {
  if (servers_->OnMessage(now, server, message)) Advance(now);
}

void JobController::OnTaskDone(absl::Time now, const Worker& worker,
                               const v1::TaskDone& done) {
  absl::Status status;
  const v1::TaskType type = tasks_.HeldType(done.task_id());
  if (type == v1::EVALUATION) {
    status = evaluation_.Report(now, worker.id, done);
    if (absl::IsInvalidArgument(status)) {
      Fail(now, absl::StrCat("evaluation: ", status.message()));
      return;
    }
  } else {
    status = tasks_.Done(now, worker.id, done.task_id(), done.output_bytes())
                 .status();
  }
  if (!status.ok()) {
    LogWarning("report of worker ", worker.id, " refused: ", status.message());
    return;
  }
  observer_.OnTaskDone(done.records());
  // A report that is repeated is no news.
  if (type != v1::NONE && done.has_exported_rows()) {
    observer_.OnExportedRows(done.exported_rows());
  }
}

void JobController::OnEvaluationDue(absl::Time now, Worker& worker,
                                    const v1::EvaluationDue& due) {
  // It stands in a world that is over, or in one whose first member has not
  // spoken yet: that one will.
  if (worker.stop_sent || HasServers() ||
      (IsTraining() && !world_.IsMember(worker.id))) {
    return;
  }
  rounds_.OnDue(now, worker, due, WorldForEvaluation());
}

void JobController::SendLedger(ConnectionId connection,
                               const v1::CheckpointBegin& begin) {
  v1::MasterMessage message;
  v1::LedgerReply& reply = *message.mutable_ledger();
  reply.set_step(begin.step());
  // Otherwise the world of that copy was given up before it could report the
  // step, or the model it belonged to.
  if (begin.step() == tasks_.step() &&
      begin.lineage() == checkpoints_.lineage()) {
    *reply.mutable_ledger() = tasks_.Snapshot();
    reply.set_run(checkpoints_.run());
    if (const Worker* worker = registry_.Find(connection)) {
      activities_.OnSaving(worker->id, begin.step());
    }
  }
  port_.Send({connection}, std::move(message));
}

void JobController::OnCheckpointDone(const v1::CheckpointDone& done) {
  if (checkpoints_.Report(done.lineage(), done.step(), done.error())) {
    v1::JournalRecord record;
    record.set_saved(done.step());
    Record(record);
    // Another worker may have failed to save this step before, and the job have
    // ended with that.
    if (ending_.has_value()) RecordOutcome();
  }
  observer_.OnCheckpoint(done);
}

}  // namespace elasticdl::master
