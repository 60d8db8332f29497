#include "job_controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

// A worker holds what it trains in this time, so that a job of quick steps does
// not exchange a message for every few of them; but no more tasks than this.
constexpr absl::Duration kHandedAhead = absl::Milliseconds(100);
constexpr int kMostHanded = 16;
// How long the workers of a job that is to stop may take to end their step and
// form a last world, before they are stopped without a checkpoint.
constexpr absl::Duration kStopGrace = absl::Seconds(30);

absl::StatusOr<TaskManager> CreateTasks(const JobController::Options& options) {
  TaskManagerOptions task_options = options.tasks;
  // What there is to evaluate will be known with the first worker.
  if (!options.data_error.ok()) task_options.final_evaluation = false;
  ELASTICDL_ASSIGN_OR_RETURN(TaskManager tasks,
                             TaskManager::Create(task_options));
  if (options.restore_ledger.has_value()) {
    const absl::Status restored = tasks.Restore(*options.restore_ledger);
    if (restored.ok() && !tasks.TrainingDone()) return tasks;
    // Weights of another data set, or of a training that is over, are a fine
    // start; their place in the data is not.
    LogInfo("starting the data from its beginning: ",
            restored.ok() ? "the checkpoint's training is complete"
                          : restored.message());
    ELASTICDL_ASSIGN_OR_RETURN(tasks, TaskManager::Create(task_options));
  }
  if (!options.restore_from.empty()) {
    ELASTICDL_RETURN_IF_ERROR(tasks.SetStep(options.restore_step));
  }
  return tasks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobController>> JobController::Create(
    Options options, JobOutput& output, absl::Time now) {
  if (!options.replay.empty()) {
    const v1::JournalRecord& first = options.replay.front();
    if (!first.has_start() ||
        first.start().job_name() != options.job.job_name()) {
      return absl::DataLossError(
          absl::StrCat("the journal is not of job ", options.job.job_name()));
    }
    // Not what the flags say now: there may be newer checkpoints.
    options.restore_from = first.start().restore_from();
    options.restore_step = first.start().restore_step();
    options.restore_ledger.reset();
    if (first.start().has_restore_ledger()) {
      options.restore_ledger = first.start().restore_ledger();
    }
  }
  ELASTICDL_ASSIGN_OR_RETURN(TaskManager tasks, CreateTasks(options));
  return std::unique_ptr<JobController>(
      new JobController(std::move(options), std::move(tasks), output, now));
}

JobController::JobController(Options options, TaskManager tasks,
                             JobOutput& output, absl::Time now)
    : options_(std::move(options)),
      output_(output),
      tasks_(std::move(tasks)),
      evaluation_(options_.evaluation, tasks_, now),
      membership_(options_.membership),
      first_ledger_(tasks_.Snapshot()) {}

bool JobController::IsTraining() const {
  return options_.job.job_type() == v1::TRAINING_ONLY ||
         options_.job.job_type() == v1::TRAINING_WITH_EVALUATION;
}

bool JobController::LastCheckpointDue() const {
  return IsTraining() && !options_.job.checkpoint_dir().empty() &&
         tasks_.TrainingDone() && saved_step_ != tasks_.step();
}

int JobController::num_ready_workers() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) {
        return entry.second.ready && !entry.second.leaving;
      }));
}

bool JobController::IsAttached(int64_t worker_id) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.id == worker_id;
  });
}

void JobController::OnMessage(absl::Time now, ConnectionId connection,
                              const v1::WorkerMessage& message) {
  if (message.has_hello()) {
    OnHello(now, connection, message.hello());
    Advance(now);
    return;
  }
  const auto found = workers_.find(connection);
  // A stream that was fenced, or that never said Hello.
  if (found == workers_.end()) {
    output_.Close(connection,
                  absl::FailedPreconditionError("not a worker of this job"));
    return;
  }
  WorkerState& worker = found->second;
  switch (message.message_case()) {
    case v1::WorkerMessage::kReady:
      OnReady(now, connection, worker, message.ready());
      break;
    case v1::WorkerMessage::kProgress:
      OnProgress(now, worker, message.progress());
      break;
    case v1::WorkerMessage::kTaskDone:
      OnTaskDone(now, worker, message.task_done());
      break;
    case v1::WorkerMessage::kEvaluationDue:
      OnEvaluationDue(now, worker, message.evaluation_due().step());
      break;
    case v1::WorkerMessage::kCheckpointBegin:
      OnCheckpointBegin(connection, message.checkpoint_begin().step());
      break;
    case v1::WorkerMessage::kCheckpointDone:
      OnCheckpointDone(message.checkpoint_done());
      break;
    case v1::WorkerMessage::kStopTraining:
      output_.OnMessage(absl::StrCat("training stops early: ",
                                     message.stop_training().reason()));
      tasks_.StopTraining(message.stop_training().reason());
      break;
    case v1::WorkerMessage::kFatal:
      Fail(now,
           absl::StrCat("worker ", worker.id, ": ", message.fatal().message()));
      break;
    case v1::WorkerMessage::kLeaving: {
      worker.leaving = true;
      worker.leaving_reason = message.leaving().reason();
      if (!IsTraining()) {
        Release(now, worker.id);
        break;
      }
      const bool had_level = membership_.HasLevelMember();
      Execute(now, had_level, membership_.Leave(now, worker.id));
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
                         " (--worker_timeout)"));
      break;
    case v1::WorkerMessage::kOffer:
    case v1::WorkerMessage::kConnected:
    case v1::WorkerMessage::kLevel:
    case v1::WorkerMessage::kWorldFailed:
    case v1::WorkerMessage::kIdle:
    case v1::WorkerMessage::kSaved:
      OnWorldMessage(now, worker, message);
      break;
    case v1::WorkerMessage::kHello:
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      LogWarning("worker ", worker.id, " sent an unknown message");
      break;
  }
  Advance(now);
}

void JobController::OnHello(absl::Time now, ConnectionId connection,
                            const v1::Hello& hello) {
  WorkerState worker;
  worker.id = hello.worker_id();
  worker.pid = hello.pid();
  worker.resumed = hello.resuming();
  if (worker.resumed && !TakeResumable(worker.id)) {
    output_.Close(connection,
                  absl::FailedPreconditionError(absl::StrCat(
                      "worker ", worker.id, " was given up meanwhile")));
    return;
  }
  // The same worker on a new stream: whatever the old one still says is stale.
  if (const auto old = connection_of_.find(worker.id);
      old != connection_of_.end()) {
    output_.Close(old->second, absl::FailedPreconditionError(absl::StrCat(
                                   "worker ", worker.id, " came back")));
    workers_.erase(old->second);
    Depart(now, worker.id, WorkerLoss::kPreempted, "came back");
  }
  // Records are counted over the life of a worker: a new process is a new one.
  if (!worker.resumed && (worker.id < 0 || used_ids_.count(worker.id) != 0)) {
    worker.id = next_worker_id_;
  }
  used_ids_.insert(worker.id);
  next_worker_id_ = std::max(next_worker_id_, worker.id + 1);
  v1::JournalRecord taken;
  taken.set_worker(worker.id);
  Record(taken);
  if (ending_.has_value() || stopping_.has_value()) {
    Stop(connection, worker, "the job is ending", 0);
    output_.Close(connection, absl::OkStatus());
    return;
  }
  v1::MasterMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_worker_id(worker.id);
  *welcome.mutable_job() = options_.job;
  if (!IsTraining()) {
    welcome.set_restore_from(options_.restore_from);
  } else if (worker.resumed) {
    // It is as warm as can be.
  } else if (const auto sample = tasks_.Sample();
             sample.has_value() && careful_until_ == 0) {
    *welcome.mutable_warm_up() = *sample;
  }
  connection_of_[worker.id] = connection;
  workers_[connection] = worker;
  output_.Send({connection}, std::move(message));
}

absl::Status JobController::LearnShards(const v1::Ready& ready) {
  shards_known_ = true;
  if (!ready.has_shards()) return options_.data_error;
  options_.data_error = absl::OkStatus();
  TaskManagerOptions& tasks = options_.tasks;
  tasks.training_shards.assign(ready.training_shards().begin(),
                               ready.training_shards().end());
  tasks.validation_shards.assign(ready.validation_shards().begin(),
                                 ready.validation_shards().end());
  tasks.prediction_shards.assign(ready.prediction_shards().begin(),
                                 ready.prediction_shards().end());
  ELASTICDL_ASSIGN_OR_RETURN(tasks_, CreateTasks(options_));
  WatchTasks();
  first_ledger_ = tasks_.Snapshot();
  v1::JournalRecord record;
  *record.mutable_shards() = ready;
  Record(record);
  return absl::OkStatus();
}

void JobController::OnReady(absl::Time now, ConnectionId connection,
                            WorkerState& worker, const v1::Ready& ready) {
  worker.ready = true;
  if (stopping_.has_value()) {
    Stop(connection, worker, stopping_->reason, 0);
    return;
  }
  output_.OnWorkerReady(worker.id, worker.pid, ready.step());
  if (worker.resumed) {
    OnResumedReady(now, connection, worker, ready);
    return;
  }
  if (!shards_known_) {
    const absl::Status status = LearnShards(ready);
    if (!status.ok()) {
      Fail(now, std::string(status.message()));
      return;
    }
  }
  if (IsTraining()) JoinWorld(now, worker.id, ready.host());
}

void JobController::OnProgress(absl::Time now, const WorkerState& worker,
                               const v1::Progress& progress) {
  const absl::Status active =
      membership_.CheckActive(worker.id, progress.generation());
  if (!active.ok()) {
    LogInfo("report of worker ", worker.id, " refused: ", active.message());
    return;
  }
  membership_.Stepped(progress.generation());
  if (stepped_generation_ != progress.generation()) {
    stepped_generation_ = progress.generation();
    output_.OnFirstStep(progress.generation(), progress.step());
  }
  const int64_t records =
      Commit(now, progress.totals(), progress.step(), progress.generation());
  output_.OnProgress(progress, records);
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
    if (connection_of_.count(total.worker_id()) == 0 &&
        gone_.count(total.worker_id()) == 0) {
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
      output_.OnCommit(range, step, generation);
    }
  }
  if (records > 0) crashes_without_commit_ = 0;
  rate_.Add(now, records);
  const absl::Status status = tasks_.SetStep(step);
  if (!status.ok()) LogWarning(status.message());
  return records;
}

void JobController::OnTaskDone(absl::Time now, const WorkerState& worker,
                               const v1::TaskDone& done) {
  absl::Status status;
  if (tasks_.HeldType(done.task_id()) == v1::EVALUATION) {
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
  output_.OnTaskDone(done.records());
}

void JobController::OnEvaluationDue(absl::Time now, WorkerState& worker,
                                    int64_t step) {
  worker.waiting = true;
  if (evaluation_.running()) return;
  evaluate_now_sent_ = false;
  if (evaluation_.DueAtStep(step) || evaluation_.DueByTime(now)) {
    const absl::Status status = evaluation_.Start(now, step);
    if (status.ok()) return;
    LogWarning("evaluation at step ", step, ": ", status.message());
  }
  // Nothing to evaluate, or it is done already: let the workers go on.
  v1::EvaluationDone done;
  done.set_step(step);
  if (last_evaluation_.step() == step) done = last_evaluation_;
  if (resumed_ != std::make_pair(membership_.active_generation(), step)) {
    SendEvaluationDone(done);
    return;
  }
  // It has heard it with the others.
  worker.waiting = false;
}

void JobController::OnCheckpointBegin(ConnectionId connection, int64_t step) {
  v1::MasterMessage message;
  v1::LedgerReply& reply = *message.mutable_ledger();
  reply.set_step(step);
  // The world of that copy was given up before it could report the step.
  if (step != tasks_.step()) {
    output_.Send({connection}, std::move(message));
    return;
  }
  *reply.mutable_ledger() = tasks_.Snapshot();
  ledgers_[step] = reply.ledger();
  v1::JournalRecord record;
  record.mutable_checkpoint()->set_step(step);
  *record.mutable_checkpoint()->mutable_ledger() = reply.ledger();
  Record(record);
  output_.Send({connection}, std::move(message));
}

void JobController::OnCheckpointDone(const v1::CheckpointDone& done) {
  last_checkpoint_error_ = done.error();
  saved_step_ = done.step();
  if (done.error().empty()) {
    v1::JournalRecord record;
    record.set_saved(done.step());
    Record(record);
    // Older ones are not needed any more.
    ledgers_.erase(ledgers_.begin(), ledgers_.lower_bound(done.step()));
  } else {
    ledgers_.erase(done.step());
  }
  output_.OnCheckpoint(done);
}

void JobController::Fail(absl::Time now, const std::string& reason) {
  if (ending_.has_value()) return;
  SetEnding({kExitJobFailed, reason});
  for (auto& [connection, worker] : workers_) {
    Stop(connection, worker, reason, kExitJobFailed);
  }
}

void JobController::StopJob(absl::Time now, const std::string& reason) {
  if (ending_.has_value()) return;
  const bool save = !stopping_.has_value() && options_.membership.save_last &&
                    membership_.HasLevelMember() &&
                    tasks_.step() > first_ledger_.step();
  stopping_ = Stopping{reason, now + kStopGrace};
  if (!save) return FinishStop();
  Execute(now, /*had_level=*/true, membership_.LeaveAll(now));
}

void JobController::FinishStop() {
  const std::string reason = stopping_->reason;
  SetEnding({kExitJobFailed, absl::StrCat("stopped: ", reason)});
  for (auto& [connection, worker] : workers_) {
    Stop(connection, worker, reason, 0);
  }
}

void JobController::Stop(ConnectionId connection, WorkerState& worker,
                         const std::string& reason, int exit_code) {
  if (worker.stop_sent) return;
  worker.stop_sent = true;
  v1::MasterMessage message;
  message.mutable_stop()->set_reason(reason);
  message.mutable_stop()->set_exit_code(exit_code);
  output_.Send({connection}, std::move(message));
}

void JobController::SendToAll(v1::MasterMessage message) {
  std::vector<ConnectionId> ready;
  for (const auto& [connection, worker] : workers_) {
    if (worker.ready) ready.push_back(connection);
  }
  output_.Send(ready, std::move(message));
}

void JobController::SendEvaluationDone(const v1::EvaluationDone& done) {
  resumed_ = {membership_.active_generation(), done.step()};
  v1::MasterMessage message;
  *message.mutable_evaluation_done() = done;
  std::vector<ConnectionId> ready;
  for (auto& [connection, worker] : workers_) {
    if (!worker.waiting && !tasks_.TrainingDone() && !IsActive(worker.id)) {
      continue;
    }
    worker.waiting = false;
    if (worker.ready) ready.push_back(connection);
  }
  output_.Send(ready, std::move(message));
}

void JobController::SetEnding(const JobResult& result) {
  ending_ = result;
  v1::JournalRecord record;
  record.mutable_outcome()->set_exit_code(result.exit_code);
  record.mutable_outcome()->set_message(result.message);
  Record(record);
}

void JobController::Advance(absl::Time now) {
  if (ending_.has_value() || !shards_known_ || waiting_.has_value()) return;
  if (stopping_.has_value()) {
    if (!membership_.HasLevelMember()) FinishStop();
    return;
  }
  if (tasks_.TrainingDone() && IsTraining()) {
    for (auto& [connection, worker] : workers_) {
      // Who is not level yet hears it from the members.
      if (!IsActive(worker.id) || worker.training_done_sent) continue;
      worker.training_done_sent = true;
      v1::MasterMessage message;
      message.mutable_training_done();
      output_.Send({connection}, std::move(message));
    }
  }
  AdvanceEvaluation(now);
  GrantTasks(now);
  WakeIfData();
  FinishIfDone();
}

void JobController::AdvanceEvaluation(absl::Time now) {
  if (auto result = evaluation_.TakeResult(now)) {
    careful_evaluation_ = false;
    v1::JournalRecord record;
    record.mutable_task()->set_evaluated(result->version);
    Record(record);
    output_.OnEvaluation(*result);
    if (!result->status.ok()) {
      Fail(now, absl::StrCat("evaluation of step ", result->version, ": ",
                             result->status.message()));
      return;
    }
    v1::EvaluationDone done;
    done.set_step(result->version);
    done.mutable_metrics()->insert(result->metrics.begin(),
                                   result->metrics.end());
    last_evaluation_ = done;
    SendEvaluationDone(done);
  }
  if (evaluation_.running()) return;
  if (evaluation_.DueAtEnd() && num_ready_workers() > 0) {
    const absl::Status status = evaluation_.Start(now, tasks_.step());
    if (!status.ok()) LogWarning("last evaluation: ", status.message());
  } else if (evaluation_.DueByTime(now) && !evaluate_now_sent_ &&
             !tasks_.TrainingDone() && num_ready_workers() > 0) {
    evaluate_now_sent_ = true;
    v1::MasterMessage message;
    message.mutable_evaluate_now();
    SendToAll(std::move(message));
  }
}

// One to each in turn: when there are few left, nobody holds what another waits
// for.
void JobController::GrantTasks(absl::Time now) {
  training_window_ = TrainingWindow(now);
  bool granted = true;
  while (granted) {
    granted = false;
    for (auto& [connection, worker] : workers_) {
      granted |= GrantTask(now, connection, worker);
    }
  }
}

bool JobController::HasRoom(int64_t worker_id, v1::TaskType type) const {
  if (careful(type)) return tasks_.NumHeld(worker_id, type) < 1;
  return WantsMore(worker_id, type);
}

int JobController::TrainingWindow(absl::Time now) {
  if (active_size_ == 0) return options_.window;
  const auto workers = static_cast<double>(active_size_);
  const double in_use = rate_.PerSecond(now) / workers *
                        absl::ToDoubleSeconds(kHandedAhead) /
                        static_cast<double>(tasks_.training_task_size());
  // Near the end nobody holds what another could train.
  const double fair =
      static_cast<double>(tasks_.NumLastTrainingRanges()) / (2 * workers);
  const double window = std::min({in_use + 1, fair, double{kMostHanded}});
  return std::max(options_.window, static_cast<int>(window));
}

bool JobController::WantsMore(int64_t worker_id, v1::TaskType type) const {
  const int window = type == v1::TRAINING ? training_window_ : options_.window;
  if (tasks_.NumHeld(worker_id, type) < window) return true;
  if (type != v1::TRAINING || active_size_ == 0) return false;
  // Its share of a few steps: what it has used is known here a step later.
  const auto share = static_cast<double>(options_.job.global_batch_size()) /
                     static_cast<double>(active_size_);
  return static_cast<double>(tasks_.TrainingRecordsHeld(worker_id)) < 4 * share;
}

bool JobController::GrantTask(absl::Time now, ConnectionId connection,
                              WorkerState& worker) {
  if (!worker.ready || worker.stop_sent) return false;
  // Only members of the world have the model.
  if (IsTraining() && !IsActive(worker.id)) return false;
  if (worker.leaving) {
    // It may have asked before it knew that it leaves.
    if (worker.starving) SendNoMoreTasks(connection, worker);
    return false;
  }
  TaskKinds kinds;
  kinds.training =
      !worker.waiting && (HasRoom(worker.id, v1::TRAINING) ||
                          (worker.starving && !careful(v1::TRAINING)));
  // A worker evaluates the version it stands at: when it waits for that, or
  // when there is nothing to train.
  kinds.evaluation = (worker.waiting || tasks_.TrainingDone()) &&
                     HasRoom(worker.id, v1::EVALUATION);
  kinds.prediction = HasRoom(worker.id, v1::PREDICTION);
  kinds.train_end = tasks_.TrainingDone() && !LastCheckpointDue();
  const GrantResult granted = tasks_.Grant(now, worker.id, kinds);
  v1::MasterMessage message;
  if (!granted.task.has_value()) {
    if (IsTraining() && !worker.no_more_sent &&
        (worker.starving || WantsMore(worker.id, v1::TRAINING))) {
      SendNoMoreTasks(connection, worker);
    }
    return false;
  }
  if (granted.task->type() == v1::TRAINING) {
    worker.no_more_sent = false;
    worker.starving = false;
  }
  *message.mutable_task() = *granted.task;
  output_.Send({connection}, std::move(message));
  return true;
}

void JobController::SendNoMoreTasks(ConnectionId connection,
                                    WorkerState& worker) {
  worker.no_more_sent = true;
  worker.starving = false;
  v1::MasterMessage message;
  message.mutable_no_more_tasks();
  output_.Send({connection}, std::move(message));
}

void JobController::FinishIfDone() {
  if (!tasks_.Finished() || evaluation_.running()) return;
  const TaskSummary summary = tasks_.Summary();
  JobResult result;
  result.message = summary.ToString();
  if (!summary.success) result.exit_code = kExitRecordsSetAside;
  SetEnding(result);
  for (auto& [connection, worker] : workers_) {
    Stop(connection, worker, "the job is done", 0);
  }
}

std::optional<JobResult> JobController::result() const {
  if (!ending_.has_value() || !workers_.empty()) return std::nullopt;
  JobResult result = *ending_;
  if (result.exit_code == 0 && !last_checkpoint_error_.empty()) {
    result.exit_code = kExitJobFailed;
    result.message = absl::StrCat("training is done, but its last checkpoint ",
                                  "was not saved: ", last_checkpoint_error_);
  }
  return result;
}

void JobController::OnTimer(absl::Time now) {
  if (waiting_.has_value() && waiting_->deadline <= now) EndResume(now);
  bool explained = false;
  for (auto& [id, gone] : gone_) {
    if (gone.loss.has_value() || gone.deadline > now) continue;
    gone.loss = WorkerLoss::kPreempted;
    explained = true;
    output_.KillWorker(id, gone.reason);
  }
  if (explained) FinishGone(now);
  if (stopping_.has_value() && !ending_.has_value() &&
      stopping_->deadline <= now && !membership_.InLastWorld()) {
    return FinishStop();
  }
  if (membership_.NextTimer() <= now && !ending_.has_value()) {
    const bool had_level = membership_.HasLevelMember();
    Execute(now, had_level, membership_.OnTimer(now));
  }
  for (const OverdueTask& overdue : tasks_.Expire(now)) {
    // Members of a world wait for each other: which of them hangs is for them
    // to say (Stuck).
    if (overdue.type == v1::TRAINING && active_size_ > 1) continue;
    Evict(now, overdue.worker_id, WorkerLoss::kCrashed,
          absl::StrCat("silent on task ", overdue.task_id, " for ",
                       absl::FormatDuration(overdue.silent), " (limit ",
                       absl::FormatDuration(overdue.limit), ")"));
  }
  Advance(now);
}

absl::Time JobController::NextTimer() const {
  // See OnTimer for the tasks of a world.
  absl::Time next = active_size_ > 1 && !evaluation_.running()
                        ? absl::InfiniteFuture()
                        : tasks_.NextExpiry();
  if (!ending_.has_value()) next = std::min(next, membership_.NextTimer());
  if (waiting_.has_value()) next = std::min(next, waiting_->deadline);
  if (stopping_.has_value() && !ending_.has_value() &&
      !membership_.InLastWorld()) {
    next = std::min(next, stopping_->deadline);
  }
  if (!evaluate_now_sent_ && num_ready_workers() > 0) {
    next = std::min(next, evaluation_.NextDueTime());
  }
  for (const auto& [id, gone] : gone_) {
    if (!gone.loss.has_value()) next = std::min(next, gone.deadline);
  }
  return next;
}

}  // namespace elasticdl::master
