#include "job_runner.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/worker.h"

namespace elasticdl::worker {
namespace {

// Steps that are left out of the speed told at the end.
constexpr int64_t kWarmUpSteps = 20;
// How long a save at the end may take before the worker gives it up.
constexpr absl::Duration kSaveTimeout = absl::Minutes(10);
// More than a worker holds at a time, so more than can be under way.
constexpr size_t kReportsRemembered = 8;

bool IsTraining(const v1::JobSpec& job) {
  return job.job_type() == v1::TRAINING_ONLY ||
         job.job_type() == v1::TRAINING_WITH_EVALUATION;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRunner>> JobRunner::Create(
    const v1::Welcome& welcome, const Deps& deps) {
  std::unique_ptr<JobRunner> runner(new JobRunner(welcome, deps));
  ELASTICDL_RETURN_IF_ERROR(runner->SetUp(welcome, deps.secret));
  return runner;
}

JobRunner::JobRunner(const v1::Welcome& welcome, const Deps& deps)
    : job_(welcome.job()),
      worker_id_(welcome.worker_id()),
      model_(deps.model),
      events_(deps.events),
      send_(deps.send) {}

JobRunner::~JobRunner() {
  for (BatchPipeline* pipeline :
       {training_.get(), evaluation_.get(), prediction_.get()}) {
    if (pipeline != nullptr) pipeline->Stop();
  }
}

absl::Status JobRunner::SetUp(const v1::Welcome& welcome,
                              const std::string& secret) {
  const bool training = IsTraining(job_);
  watchdog_ = std::make_unique<elastic::Watchdog>(
      absl::Seconds(job_.worker_timeout_seconds()),
      [this](const std::string& where, absl::Duration age) {
        SendStuck(where, age);
      });
  ELASTICDL_ASSIGN_OR_RETURN(replica_,
                             Replica::Create(model_, job_.seed(), training));
  if (training) {
    ELASTICDL_RETURN_IF_ERROR(SetUpTraining(secret));
    if (welcome.has_warm_up()) {
      ELASTICDL_RETURN_IF_ERROR(WarmUp(welcome.warm_up()));
    }
  } else if (!welcome.restore_from().empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(const checkpoint::Loaded loaded,
                               checkpoint::Load(welcome.restore_from()));
    ELASTICDL_RETURN_IF_ERROR(replica_->Restore(loaded));
    LogInfo("restored ", welcome.restore_from(), " (step ", replica_->step(),
            ")");
  }
  if (CheckpointsWanted()) {
    checkpoint::SaveOptions options;
    options.keep_max = job_.keep_checkpoint_max();
    saver_ = std::make_unique<checkpoint::AsyncSaver>(job_.checkpoint_dir(),
                                                      options);
  }
  if (!job_.validation_data().empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(metrics_, model_.CreateMetrics());
    ELASTICDL_ASSIGN_OR_RETURN(
        evaluation_, MakePipeline(job_.validation_data(), Mode::kEvaluation,
                                  Event::Kind::kOther));
  }
  if (!job_.prediction_data().empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(processor_, model_.CreatePredictionProcessor());
    if (processor_ == nullptr) {
      ELASTICDL_ASSIGN_OR_RETURN(
          writer_,
          PredictionWriter::Open(job_.prediction_output_dir(), worker_id_));
    }
    ELASTICDL_ASSIGN_OR_RETURN(
        prediction_, MakePipeline(job_.prediction_data(), Mode::kPrediction,
                                  Event::Kind::kOther));
  }
  return absl::OkStatus();
}

absl::Status JobRunner::SetUpTraining(const std::string& secret) {
  learning_rate_ = replica_->learning_rate();
  ELASTICDL_ASSIGN_OR_RETURN(callbacks_, model_.CreateCallbacks());
  elastic::WorldLink::Options link;
  link.worker_id = worker_id_;
  if (!job_.collective().empty()) link.backend.backend = job_.collective();
  link.secret = secret;
  link_ = std::make_unique<elastic::WorldLink>(
      link, send_, [this](int64_t generation) {
        Event event;
        event.kind = Event::Kind::kWorldConnected;
        event.generation = generation;
        events_.Push(std::move(event));
      });
  TrainingSession::Options options;
  options.watchdog = watchdog_.get();
  options.worker_id = worker_id_;
  options.minibatch_size = job_.minibatch_size();
  options.global_batch_size = job_.global_batch_size();
  options.compression =
      job_.grad_compression() == "bf16"   ? GradientCompression::kBFloat16
      : job_.grad_compression() == "fp16" ? GradientCompression::kFloat16
                                          : GradientCompression::kNone;
  session_ =
      std::make_unique<TrainingSession>(options, *replica_, *link_, send_);
  ELASTICDL_ASSIGN_OR_RETURN(training_,
                             MakePipeline(job_.training_data(), Mode::kTraining,
                                          Event::Kind::kTraining));
  session_->released = [this] { training_->Release(); };
  return absl::OkStatus();
}

// Reads, feeds and trains one minibatch that others have trained before, and
// forgets it.
absl::Status JobRunner::WarmUp(const v1::Task& task) {
  ELASTICDL_ASSIGN_OR_RETURN(data::DataReader * reader,
                             OpenReader(job_.training_data()));
  Queue<std::shared_ptr<Minibatch>> made(1);
  BatchPipeline::Options options;
  options.minibatch_size = job_.minibatch_size();
  BatchPipeline pipeline(
      options, model_, *reader,
      [&](std::shared_ptr<Minibatch> minibatch) { made.Push(minibatch); });
  pipeline.Add(task);
  const std::optional<std::shared_ptr<Minibatch>> minibatch = made.Pop();
  ELASTICDL_ASSIGN_OR_RETURN(const Batch batch, (*minibatch)->Take());
  pipeline.Stop();
  made.Close();
  return session_->WarmUp(batch);
}

absl::StatusOr<data::DataReader*> JobRunner::OpenReader(
    const std::string& origin) {
  std::unique_ptr<data::DataReader>& reader = readers_[origin];
  if (reader == nullptr) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const data::ReaderParams params,
        data::ParseReaderParams(job_.data_reader_params()));
    ELASTICDL_ASSIGN_OR_RETURN(reader, model_.OpenReader(origin, params));
    has_own_reader_ = reader != nullptr;
    if (reader == nullptr) {
      ELASTICDL_ASSIGN_OR_RETURN(reader, data::OpenDataReader(origin, params));
    }
  }
  return reader.get();
}

absl::Status JobRunner::AddShards(v1::Ready& ready) {
  if (!has_own_reader_) return absl::OkStatus();
  ready.set_has_shards(true);
  const auto add = [&](const std::string& origin,
                       auto* shards) -> absl::Status {
    if (origin.empty()) return absl::OkStatus();
    ELASTICDL_ASSIGN_OR_RETURN(const std::vector<data::Shard> made,
                               readers_[origin]->CreateShards());
    for (const data::Shard& shard : made) {
      v1::LedgerShard& added = *shards->Add();
      added.set_name(shard.name);
      added.set_begin(shard.begin);
      added.set_end(shard.end);
    }
    return absl::OkStatus();
  };
  ELASTICDL_RETURN_IF_ERROR(
      add(job_.training_data(), ready.mutable_training_shards()));
  ELASTICDL_RETURN_IF_ERROR(
      add(job_.validation_data(), ready.mutable_validation_shards()));
  return add(job_.prediction_data(), ready.mutable_prediction_shards());
}

absl::StatusOr<std::unique_ptr<BatchPipeline>> JobRunner::MakePipeline(
    const std::string& origin, Mode mode, Event::Kind kind) {
  ELASTICDL_ASSIGN_OR_RETURN(data::DataReader * reader, OpenReader(origin));
  BatchPipeline::Options options;
  options.mode = mode;
  options.minibatch_size = job_.minibatch_size();
  // A lone worker waits for a whole step of minibatches.
  options.depth = std::max(
      options.depth,
      static_cast<int>(job_.global_batch_size() / job_.minibatch_size()));
  return std::make_unique<BatchPipeline>(
      options, model_, *reader,
      [this, kind](std::shared_ptr<Minibatch> minibatch) {
        Event event;
        event.kind = kind;
        event.minibatch = std::move(minibatch);
        events_.Push(std::move(event));
      });
}

void JobRunner::Receive(v1::MasterMessage message) {
  if (message.has_task()) {
    AddTask(std::move(*message.mutable_task()));
    return;
  }
  if (message.has_no_more_tasks() && session_ != nullptr) {
    session_->OnNoMoreTasks();
  }
  if (link_ != nullptr) {
    if (message.has_prepare()) link_->OnPrepare(message.prepare());
    if (message.has_dissolve()) link_->OnDissolve(message.dissolve());
    if (message.has_stop()) link_->AbortAll(message.stop().reason());
    if (message.has_offers()) {
      link_->OnOffers(message.offers());
      return;
    }
  }
  Event event;
  event.message = std::move(message);
  events_.Push(std::move(event));
}

void JobRunner::OnMasterLost() {
  if (link_ != nullptr) link_->AbortAll("the master is lost");
  Event event;
  event.kind = Event::Kind::kMasterLost;
  events_.Push(std::move(event));
}

void JobRunner::OnMasterBack() {
  Event event;
  event.kind = Event::Kind::kMasterBack;
  events_.Push(std::move(event));
}

void JobRunner::RepeatReports() {
  // Their ledgers were the old master's to give.
  unsettled_snapshot_.reset();
  waiting_snapshots_.clear();
  last_checkpoint_step_ = -1;
  v1::Ready ready;
  ready.set_has_state(session_ != nullptr && session_->has_state());
  ready.set_last_task_id(last_task_id_);
  SendReady(std::move(ready));
  for (const v1::WorkerMessage& message : reported_) send_(message);
  if (failed_) {
    v1::WorkerMessage message;
    message.mutable_fatal()->set_message(failure_);
    send_(std::move(message));
  }
  if (leaving_) {
    leaving_sent_ = false;
    StartLeaving();
  }
}

void JobRunner::AddTask(v1::Task task) {
  last_task_id_ = task.task_id();
  if (task.type() == v1::TRAINING && training_ != nullptr) {
    session_->AnnounceTask();
    training_->Add(std::move(task));
  } else if (task.type() == v1::EVALUATION && evaluation_ != nullptr) {
    evaluation_->Add(std::move(task));
  } else if (task.type() == v1::PREDICTION && prediction_ != nullptr) {
    prediction_->Add(std::move(task));
  } else {
    Event event;
    *event.message.mutable_task() = std::move(task);
    events_.Push(std::move(event));
  }
}

void JobRunner::SendReady(v1::Ready ready) {
  ready.set_step(replica_->step());
  ready.set_host(collective::LocalHost());
  v1::WorkerMessage message;
  *message.mutable_ready() = std::move(ready);
  send_(std::move(message));
}

int JobRunner::Run() {
  v1::Ready ready;
  const absl::Status shards = AddShards(ready);
  if (!shards.ok()) {
    Fail(shards);
  } else {
    SendReady(std::move(ready));
  }
  while (!exit_code_.has_value()) {
    const bool work = session_ != nullptr && !failed_ && session_->HasWork();
    // About to wait: whoever watches should know how far we are.
    if (!work && session_ != nullptr && events_.size() == 0) {
      session_->Report();
      if (session_->Starves()) SendStarving();
    }
    std::optional<Event> event;
    {
      const bool data =
          !work && session_ != nullptr && session_->WaitsForData();
      const elastic::Watchdog::Watch watch(data ? watchdog_.get() : nullptr,
                                           "reading data");
      event =
          events_.Pop(work ? absl::ZeroDuration() : absl::InfiniteDuration());
    }
    absl::Status status;
    if (event.has_value()) {
      status = Handle(*std::move(event));
    } else if (work) {
      status = Train();
    } else {
      break;
    }
    if (!status.ok()) Fail(status);
  }
  return exit_code_.value_or(kExitMasterLost);
}

absl::Status JobRunner::Handle(Event event) {
  switch (event.kind) {
    case Event::Kind::kMessage:
      return HandleMessage(event.message);
    case Event::Kind::kTraining:
      session_->AddMinibatch(std::move(event.minibatch));
      return absl::OkStatus();
    case Event::Kind::kOther:
      return event.minibatch->task().type() == v1::EVALUATION
                 ? Evaluate(*event.minibatch)
                 : Predict(*event.minibatch);
    case Event::Kind::kWorldConnected:
      session_->OnConnected(event.generation);
      return absl::OkStatus();
    case Event::Kind::kLeave:
      StartLeaving();
      return absl::OkStatus();
    case Event::Kind::kSaveDone:
      --saves_under_way_;
      SaveLast();
      return absl::OkStatus();
    case Event::Kind::kMasterBack:
      RepeatReports();
      return absl::OkStatus();
    case Event::Kind::kMasterLost:
      exit_code_ = leaving_ ? 0 : kExitMasterLost;
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status JobRunner::HandleMessage(const v1::MasterMessage& message) {
  switch (message.message_case()) {
    case v1::MasterMessage::kTask:
      return TrainEnd(message.task());
    case v1::MasterMessage::kPrepare:
      session_->OnPrepare(message.prepare());
      return absl::OkStatus();
    case v1::MasterMessage::kSwitch:
      session_->OnSwitch(message.switch_().generation());
      return absl::OkStatus();
    case v1::MasterMessage::kDissolve:
      session_->OnDissolve(message.dissolve().generation());
      return absl::OkStatus();
    case v1::MasterMessage::kWake:
      session_->OnWake(message.wake().generation());
      return absl::OkStatus();
    // The session knows already; this event only wakes the loop.
    case v1::MasterMessage::kNoMoreTasks:
      return absl::OkStatus();
    case v1::MasterMessage::kTrainingDone:
      LogSpeed();
      if (session_->over() && session_->halted()) return absl::OkStatus();
      session_->End();
      AfterHalt();
      return absl::OkStatus();
    case v1::MasterMessage::kEvaluateNow:
      session_->AskEvaluation();
      return absl::OkStatus();
    case v1::MasterMessage::kEvaluationDone:
      return OnEvaluationDone(message.evaluation_done());
    case v1::MasterMessage::kLedger:
      SubmitCheckpoint(message.ledger());
      return absl::OkStatus();
    case v1::MasterMessage::kStop:
      LogInfo("stopping: ", message.stop().reason());
      ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.stop"));
      FinishCheckpoints();
      exit_code_ = message.stop().exit_code();
      return absl::OkStatus();
    case v1::MasterMessage::kOffers:
    case v1::MasterMessage::kWelcome:
    case v1::MasterMessage::MESSAGE_NOT_SET:
      break;
  }
  LogWarning("ignored a message of the master that this version does not know");
  return absl::OkStatus();
}

absl::Status JobRunner::Train() {
  if (!callbacks_->empty() && !session_->HasWorldToEnter() &&
      begun_step_ != replica_->step() + 1) {
    const elastic::Watchdog::Watch watch(watchdog_.get(), "callbacks");
    begun_step_ = replica_->step() + 1;
    ELASTICDL_RETURN_IF_ERROR(callbacks_->OnTrainBatchBegin(begun_step_));
    learning_rate_ =
        callbacks_->learning_rate().value_or(replica_->learning_rate());
  }
  ELASTICDL_ASSIGN_OR_RETURN(const WorkDone done,
                             session_->Work(learning_rate_));
  if (done.entered) AfterEntering();
  if (done.stepped) AfterStep(done);
  if (unsettled_snapshot_.has_value() &&
      session_->settled_step() == unsettled_step_) {
    AskLedger();
  }
  if (done.halted) AfterHalt();
  return absl::OkStatus();
}

void JobRunner::AfterEntering() {
  // Its step may have been overtaken in the change of worlds.
  if (unsettled_snapshot_.has_value()) last_checkpoint_step_ = -1;
  unsettled_snapshot_.reset();
  const elastic::World& world = *session_->world();
  last_checkpoint_step_ =
      world.cold ? world.saved_step
                 : std::max(last_checkpoint_step_, world.saved_step);
  if (leaving_) StartLeaving();
  if (session_->halted()) AfterHalt();
  if (!world.last) return;
  // Also who was not asked to leave: the whole job is to stop.
  session_->StopTakingData();
  SaveLast();
}

void JobRunner::AfterStep(const WorkDone& done) {
  const int64_t step = replica_->step();
  if (++steps_here_ == kWarmUpSteps) {
    measured_since_ = Clock::Real().Now();
  } else if (steps_here_ > kWarmUpSteps) {
    measured_records_ += done.records;
  }
  if (job_.log_loss_steps() > 0 && step % job_.log_loss_steps() == 0) {
    LogInfo("step ", step, " loss ", done.loss, " lr ", learning_rate_);
  }
  if (session_->is_reporter() && CheckpointDue()) BeginCheckpoint();
  if (const auto reason = callbacks_->stop_reason(); reason.has_value()) {
    session_->AskStop(*reason);
  }
  if (job_.max_step() > 0 && step >= job_.max_step()) {
    session_->AskHalt(TrainingSession::Halt::kOver);
  } else if (evaluation_ != nullptr && job_.evaluation_steps() > 0 &&
             step % job_.evaluation_steps() == 0) {
    session_->AskHalt(TrainingSession::Halt::kEvaluation);
  }
}

void JobRunner::AfterHalt() {
  if (!session_->over()) {
    SendEvaluationDue();
    return;
  }
  LogInfo("model of step ", replica_->step(), ": digest ",
          absl::Hex(replica_->StateDigest(), absl::kZeroPad8));
  if (!session_->is_reporter()) return;
  if (!session_->stop_reason().empty()) SendStopTraining();
  if (CheckpointsWanted() && last_checkpoint_step_ != replica_->step()) {
    BeginCheckpoint();
  }
}

void JobRunner::SendStopTraining() {
  v1::WorkerMessage message;
  message.mutable_stop_training()->set_reason(session_->stop_reason());
  send_(std::move(message));
}

void JobRunner::SendStarving() {
  v1::WorkerMessage message;
  message.mutable_starving();
  send_(std::move(message));
}

void JobRunner::SendStuck(const std::string& where, absl::Duration age) {
  LogError("stuck in ", where, " for ", absl::FormatDuration(age));
  v1::WorkerMessage message;
  message.mutable_stuck()->set_where(where);
  message.mutable_stuck()->set_seconds(absl::ToDoubleSeconds(age));
  send_(std::move(message));
}

bool JobRunner::CheckpointDue() const {
  if (!CheckpointsWanted() || job_.checkpoint_steps() <= 0) return false;
  // Also when the step that was due fell into a change of worlds.
  return replica_->step() / job_.checkpoint_steps() >
         std::max<int64_t>(0, last_checkpoint_step_) / job_.checkpoint_steps();
}

void JobRunner::LogSpeed() const {
  if (measured_records_ == 0) return;
  const double seconds =
      absl::ToDoubleSeconds(Clock::Real().Now() - measured_since_);
  LogInfo("trained ", measured_records_, " records in ", seconds, " s (",
          static_cast<double>(measured_records_) / seconds,
          " records/s, evaluations included)");
}

void JobRunner::SendEvaluationDue() {
  v1::WorkerMessage message;
  message.mutable_evaluation_due()->set_step(replica_->step());
  send_(std::move(message));
}

absl::Status JobRunner::OnEvaluationDone(const v1::EvaluationDone& done) {
  if (session_ == nullptr) return absl::OkStatus();
  if (session_->halted() && done.step() >= replica_->step()) {
    session_->Resume();
  }
  if (done.step() <= evaluated_step_ || done.metrics().empty()) {
    return absl::OkStatus();
  }
  evaluated_step_ = done.step();
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnEvaluationEnd(
      done.step(), {done.metrics().begin(), done.metrics().end()}));
  if (const auto reason = callbacks_->stop_reason(); reason.has_value()) {
    session_->AskStop(*reason);
  }
  return absl::OkStatus();
}

absl::Status JobRunner::Evaluate(Minibatch& minibatch) {
  const elastic::Watchdog::Watch watch(watchdog_.get(), "evaluation");
  absl::StatusOr<Batch> batch = minibatch.Take();
  evaluation_->Release();
  ELASTICDL_RETURN_IF_ERROR(batch.status());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.evaluate"));
  ELASTICDL_ASSIGN_OR_RETURN(const Outputs outputs,
                             replica_->Predict(batch->features));
  ELASTICDL_RETURN_IF_ERROR(metrics_->Update(batch->labels, outputs));
  evaluated_records_ += minibatch.records();
  if (minibatch.last_of_task()) {
    SendDone(minibatch.task(), evaluated_records_, metrics_->Take());
    evaluated_records_ = 0;
  }
  return absl::OkStatus();
}

absl::Status JobRunner::Predict(Minibatch& minibatch) {
  const elastic::Watchdog::Watch watch(watchdog_.get(), "prediction");
  absl::StatusOr<Batch> batch = minibatch.Take();
  prediction_->Release();
  ELASTICDL_RETURN_IF_ERROR(batch.status());
  ELASTICDL_ASSIGN_OR_RETURN(const Outputs outputs,
                             replica_->Predict(batch->features));
  if (processor_ != nullptr) {
    ELASTICDL_RETURN_IF_ERROR(processor_->Process(outputs, worker_id_));
  } else {
    ELASTICDL_RETURN_IF_ERROR(writer_->Add(
        minibatch.task().range().shard(), minibatch.record_numbers(), outputs));
  }
  if (minibatch.last_of_task()) {
    if (writer_.has_value()) ELASTICDL_RETURN_IF_ERROR(writer_->Flush());
    ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.predicted"));
    const v1::LedgerRange& range = minibatch.task().range();
    SendDone(minibatch.task(), range.end() - range.begin(), {},
             writer_.has_value() ? writer_->bytes() : 0);
  }
  return absl::OkStatus();
}

absl::Status JobRunner::TrainEnd(const v1::Task& task) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.train_end"));
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnTrainEnd());
  if (!job_.output().empty()) {
    ELASTICDL_RETURN_IF_ERROR(
        model::ExportTo(job_.output(), replica_->network()));
    LogInfo("exported the model to ", job_.output());
  }
  SendDone(task, 0, {});
  return absl::OkStatus();
}

void JobRunner::SendDone(const v1::Task& task, int64_t records,
                         std::vector<model::MetricSums> metrics,
                         int64_t output_bytes) {
  v1::WorkerMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_task_id(task.task_id());
  done.set_records(records);
  done.set_output_bytes(output_bytes);
  for (const model::MetricSums& metric : metrics) {
    v1::MetricSums& sums = *done.add_metrics();
    sums.set_name(metric.name);
    sums.set_kind(metric.kind);
    sums.mutable_sums()->Add(metric.sums.begin(), metric.sums.end());
  }
  if (task.type() != v1::EVALUATION) {
    reported_.push_back(message);
    if (reported_.size() > kReportsRemembered) reported_.pop_front();
  }
  send_(std::move(message));
}

void JobRunner::BeginCheckpoint() {
  unsettled_step_ = last_checkpoint_step_ = replica_->step();
  // The copy is the pause of training; writing goes on beside it.
  unsettled_snapshot_ = checkpoint::OwnedSnapshot::Copy(replica_->View());
  if (session_->settled_step() == unsettled_step_) AskLedger();
}

void JobRunner::AskLedger() {
  // It was the last round of a world that goes on without this worker: there is
  // nobody to report the step.
  if (session_->world() == nullptr) {
    unsettled_snapshot_.reset();
    last_checkpoint_step_ = -1;
    return;
  }
  // The master answers with the ledger of the last report.
  session_->Report();
  waiting_snapshots_[unsettled_step_] = *std::move(unsettled_snapshot_);
  unsettled_snapshot_.reset();
  asked_generation_ = session_->world()->generation;
  v1::WorkerMessage message;
  message.mutable_checkpoint_begin()->set_step(unsettled_step_);
  send_(std::move(message));
}

void JobRunner::SubmitCheckpoint(const v1::LedgerReply& reply) {
  const auto found = waiting_snapshots_.find(reply.step());
  if (found == waiting_snapshots_.end()) return;
  checkpoint::OwnedSnapshot snapshot = std::move(found->second);
  waiting_snapshots_.erase(found);
  if (!reply.has_ledger()) {
    LogInfo("the copy of step ", reply.step(), " is dropped: its world ended");
    last_checkpoint_step_ = -1;
    // A world that came since has relied on that copy.
    if (session_->world() != nullptr &&
        session_->world()->generation != asked_generation_) {
      if (session_->over() && session_->halted()) AfterHalt();
      SaveLast();
    }
    return;
  }
  snapshot.snapshot.ledger = reply.ledger();
  const absl::Time start = Clock::Real().Now();
  ++saves_under_way_;
  saver_->Submit(
      std::move(snapshot),
      [&events = events_, send = send_, step = reply.step(),
       start](const absl::StatusOr<std::string>& path) {
        const absl::Cleanup over = [&events] {
          Event event;
          event.kind = Event::Kind::kSaveDone;
          events.Push(std::move(event));
        };
        if (absl::IsCancelled(path.status())) {
          LogDebug("checkpoint of step ", step,
                   " was overtaken by a newer one");
          return;
        }
        v1::WorkerMessage message;
        v1::CheckpointDone& done = *message.mutable_checkpoint_done();
        done.set_step(step);
        done.set_seconds(absl::ToDoubleSeconds(Clock::Real().Now() - start));
        if (path.ok()) {
          done.set_path(*path);
        } else {
          done.set_error(std::string(path.status().message()));
        }
        send(std::move(message));
      });
}

void JobRunner::FinishCheckpoints() {
  if (saver_ == nullptr) return;
  const absl::Status status = saver_->Flush(kSaveTimeout);
  if (!status.ok()) LogError("saving the last checkpoint: ", status.message());
}

void JobRunner::StartLeaving() {
  leaving_ = true;
  // Also in a world that it enters before the master lets it go: it is given no
  // data there, and the others must not wait for its part of a step.
  if (session_ != nullptr) session_->StopTakingData();
  if (leaving_sent_) return;
  leaving_sent_ = true;
  if (session_ != nullptr) session_->Report();
  v1::WorkerMessage message;
  message.mutable_leaving()->set_reason("SIGTERM");
  send_(std::move(message));
  // The master says Stop when this worker is not needed any more: when others
  // have the model, or when it is saved (SaveLast).
}

void JobRunner::SaveLast() {
  const elastic::World* world =
      session_ == nullptr ? nullptr : session_->world();
  if (world == nullptr || !world->last || !session_->is_reporter() ||
      saved_generation_ == world->generation) {
    return;
  }
  if (CheckpointsWanted() && last_checkpoint_step_ != replica_->step()) {
    BeginCheckpoint();
  }
  if (unsettled_snapshot_.has_value() || !waiting_snapshots_.empty() ||
      saves_under_way_ > 0) {
    return;
  }
  saved_generation_ = world->generation;
  v1::WorkerMessage message;
  message.mutable_saved()->set_generation(world->generation);
  send_(std::move(message));
}

void JobRunner::Fail(const absl::Status& status) {
  LogError(status.message());
  failure_ = std::string(status.message());
  v1::WorkerMessage message;
  message.mutable_fatal()->set_message(failure_);
  send_(std::move(message));
  // The master says Stop; until then, nothing more is trained.
  failed_ = true;
}

}  // namespace elasticdl::worker
