#include "job_runner.h"

#include <utility>

#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/worker.h"

namespace elasticdl::worker {
namespace {

// Steps that are left out of the speed told at the end.
constexpr int64_t kWarmUpSteps = 20;
// Often enough for a display, seldom enough to cost nothing.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);
// How long a save at the end may take before the worker gives it up.
constexpr absl::Duration kSaveTimeout = absl::Minutes(10);

bool IsTraining(const v1::JobSpec& job) {
  return job.job_type() == v1::TRAINING_ONLY ||
         job.job_type() == v1::TRAINING_WITH_EVALUATION;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRunner>> JobRunner::Create(
    const v1::Welcome& welcome, model::Model& model, EventQueue& events,
    SendFunction send) {
  std::unique_ptr<JobRunner> runner(
      new JobRunner(welcome, model, events, std::move(send)));
  ELASTICDL_RETURN_IF_ERROR(runner->SetUp(welcome));
  return runner;
}

JobRunner::JobRunner(const v1::Welcome& welcome, model::Model& model,
                     EventQueue& events, SendFunction send)
    : job_(welcome.job()),
      worker_id_(welcome.worker_id()),
      model_(model),
      events_(events),
      send_(std::move(send)),
      last_progress_(Clock::Real().Now()) {}

JobRunner::~JobRunner() {
  for (BatchPipeline* pipeline :
       {training_.get(), evaluation_.get(), prediction_.get()}) {
    if (pipeline != nullptr) pipeline->Stop();
  }
}

absl::Status JobRunner::SetUp(const v1::Welcome& welcome) {
  const bool training = IsTraining(job_);
  ELASTICDL_ASSIGN_OR_RETURN(replica_,
                             Replica::Create(model_, job_.seed(), training));
  if (!welcome.restore_from().empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(const checkpoint::Loaded loaded,
                               checkpoint::Load(welcome.restore_from()));
    ELASTICDL_RETURN_IF_ERROR(replica_->Restore(loaded));
    LogInfo("restored ", welcome.restore_from(), " (step ", replica_->step(),
            ")");
  }
  if (training) {
    trainer_ = std::make_unique<LocalTrainer>(*replica_);
    learning_rate_ = replica_->learning_rate();
    ELASTICDL_ASSIGN_OR_RETURN(callbacks_, model_.CreateCallbacks());
    ELASTICDL_ASSIGN_OR_RETURN(
        training_, MakePipeline(job_.training_data(), Mode::kTraining,
                                Event::Kind::kTraining));
  }
  if (CheckpointsWanted()) {
    checkpoint::SaveOptions options;
    options.keep_max = job_.keep_checkpoint_max();
    saver_ = std::make_unique<checkpoint::AsyncSaver>(job_.checkpoint_dir(),
                                                      options);
    last_checkpoint_step_ =
        welcome.restore_from().empty() ? -1 : replica_->step();
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
  return std::make_unique<BatchPipeline>(
      options, model_, *reader,
      [this, kind](std::shared_ptr<Minibatch> minibatch) {
        Event event;
        event.kind = kind;
        event.minibatch = std::move(minibatch);
        events_.Push(std::move(event));
      });
}

void JobRunner::AddTask(v1::Task task) {
  if (task.type() == v1::TRAINING && training_ != nullptr) {
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

int JobRunner::Run() {
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_step(replica_->step());
  const absl::Status shards = AddShards(*ready.mutable_ready());
  if (!shards.ok()) {
    Fail(shards);
  } else {
    send_(std::move(ready));
  }
  while (!exit_code_.has_value()) {
    absl::Status status;
    if (!paused_ && !held_.empty()) {
      const std::shared_ptr<Minibatch> next = held_.front();
      held_.pop_front();
      status = Train(*next);
    } else {
      // About to wait: whoever watches should know how far we are.
      if (events_.size() == 0) SendProgress();
      std::optional<Event> event = events_.Pop();
      if (!event.has_value()) break;
      status = Handle(*std::move(event));
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
      if (paused_ || !held_.empty()) {
        held_.push_back(std::move(event.minibatch));
        return absl::OkStatus();
      }
      return Train(*event.minibatch);
    case Event::Kind::kOther:
      return event.minibatch->task().type() == v1::EVALUATION
                 ? Evaluate(*event.minibatch)
                 : Predict(*event.minibatch);
    case Event::Kind::kLeave:
      StartLeaving();
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
    case v1::MasterMessage::kTrainingDone:
      SendProgress();
      LogSpeed();
      training_over_ = true;
      if (CheckpointsWanted() && last_checkpoint_step_ != replica_->step()) {
        BeginCheckpoint();
      }
      return absl::OkStatus();
    case v1::MasterMessage::kEvaluateNow:
      if (!paused_) RequestEvaluation();
      return absl::OkStatus();
    case v1::MasterMessage::kEvaluationDone:
      return OnEvaluationDone(message.evaluation_done());
    case v1::MasterMessage::kLedger:
      SubmitCheckpoint(message.ledger());
      return absl::OkStatus();
    case v1::MasterMessage::kStop:
      LogInfo("stopping: ", message.stop().reason());
      FinishCheckpoints();
      exit_code_ = message.stop().exit_code();
      return absl::OkStatus();
    case v1::MasterMessage::kWelcome:
    case v1::MasterMessage::MESSAGE_NOT_SET:
      break;
  }
  LogWarning("ignored a message of the master that this version does not know");
  return absl::OkStatus();
}

absl::Status JobRunner::Train(Minibatch& minibatch) {
  if (training_over_ || leaving_) {
    training_->Release();
    return absl::OkStatus();
  }
  absl::StatusOr<Batch> batch = minibatch.Take();
  training_->Release();
  ELASTICDL_RETURN_IF_ERROR(batch.status());
  if (!callbacks_->empty()) {
    ELASTICDL_RETURN_IF_ERROR(
        callbacks_->OnTrainBatchBegin(replica_->step() + 1));
    learning_rate_ =
        callbacks_->learning_rate().value_or(replica_->learning_rate());
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.step"));
  const absl::StatusOr<double> loss = trainer_->Step(*batch, learning_rate_);
  if (!loss.ok()) {
    return Annotate(loss.status(),
                    absl::StrCat("training on records ", minibatch.begin(),
                                 " to ", minibatch.end(), " of ",
                                 minibatch.task().range().shard()));
  }
  return AfterStep(minibatch, *loss);
}

absl::Status JobRunner::AfterStep(const Minibatch& minibatch, double loss) {
  const int64_t step = replica_->step();
  commits_[minibatch.task().task_id()] = minibatch.end();
  uncommitted_records_ += minibatch.records();
  last_loss_ = loss;
  if (++steps_here_ == kWarmUpSteps) {
    measured_since_ = Clock::Real().Now();
  } else if (steps_here_ > kWarmUpSteps) {
    measured_records_ += minibatch.records();
  }
  if (job_.log_loss_steps() > 0 && step % job_.log_loss_steps() == 0) {
    LogInfo("step ", step, " loss ", loss, " lr ", learning_rate_);
  }
  const bool checkpoint = CheckpointsWanted() && job_.checkpoint_steps() > 0 &&
                          step % job_.checkpoint_steps() == 0;
  const bool evaluate = evaluation_ != nullptr && job_.evaluation_steps() > 0 &&
                        step % job_.evaluation_steps() == 0;
  const bool last = job_.max_step() > 0 && step >= job_.max_step();
  if (checkpoint || evaluate || last || minibatch.last_of_task() ||
      Clock::Real().Now() - last_progress_ >= kProgressInterval) {
    SendProgress();
  }
  if (checkpoint) BeginCheckpoint();
  if (last) training_over_ = true;
  // The evaluation at the end is the master's to begin.
  if (evaluate && !last) RequestEvaluation();
  if (const auto reason = callbacks_->stop_reason();
      reason.has_value() && !training_over_) {
    SendProgress();
    training_over_ = true;
    v1::WorkerMessage message;
    message.mutable_stop_training()->set_reason(*reason);
    send_(std::move(message));
  }
  return absl::OkStatus();
}

void JobRunner::SendProgress() {
  if (commits_.empty()) return;
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_step(replica_->step());
  progress.set_loss(last_loss_);
  progress.set_learning_rate(learning_rate_);
  progress.set_records(uncommitted_records_);
  for (const auto& [task_id, end] : commits_) {
    v1::Commit& commit = *progress.add_commits();
    commit.set_task_id(task_id);
    commit.set_end(end);
  }
  commits_.clear();
  uncommitted_records_ = 0;
  last_progress_ = Clock::Real().Now();
  send_(std::move(message));
}

void JobRunner::LogSpeed() const {
  if (measured_records_ == 0) return;
  const double seconds =
      absl::ToDoubleSeconds(Clock::Real().Now() - measured_since_);
  LogInfo("trained ", measured_records_, " records in ", seconds, " s (",
          static_cast<double>(measured_records_) / seconds,
          " records/s, evaluations included)");
}

void JobRunner::RequestEvaluation() {
  SendProgress();
  v1::WorkerMessage message;
  message.mutable_evaluation_due()->set_step(replica_->step());
  send_(std::move(message));
  paused_ = true;
}

absl::Status JobRunner::OnEvaluationDone(const v1::EvaluationDone& done) {
  paused_ = false;
  if (!callbacks_.has_value()) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnEvaluationEnd(
      done.step(), {done.metrics().begin(), done.metrics().end()}));
  if (const auto reason = callbacks_->stop_reason();
      reason.has_value() && !training_over_) {
    training_over_ = true;
    v1::WorkerMessage message;
    message.mutable_stop_training()->set_reason(*reason);
    send_(std::move(message));
  }
  return absl::OkStatus();
}

absl::Status JobRunner::Evaluate(Minibatch& minibatch) {
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
    const v1::LedgerRange& range = minibatch.task().range();
    SendDone(minibatch.task(), range.end() - range.begin(), {});
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
                         std::vector<model::MetricSums> metrics) {
  v1::WorkerMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_task_id(task.task_id());
  done.set_records(records);
  for (const model::MetricSums& metric : metrics) {
    v1::MetricSums& sums = *done.add_metrics();
    sums.set_name(metric.name);
    sums.set_kind(metric.kind);
    sums.mutable_sums()->Add(metric.sums.begin(), metric.sums.end());
  }
  send_(std::move(message));
}

void JobRunner::BeginCheckpoint() {
  const int64_t step = replica_->step();
  last_checkpoint_step_ = step;
  // The copy is the pause of training; writing goes on beside it.
  waiting_snapshots_[step] = checkpoint::OwnedSnapshot::Copy(replica_->View());
  v1::WorkerMessage message;
  message.mutable_checkpoint_begin()->set_step(step);
  send_(std::move(message));
}

void JobRunner::SubmitCheckpoint(const v1::LedgerReply& reply) {
  const auto found = waiting_snapshots_.find(reply.step());
  if (found == waiting_snapshots_.end()) return;
  checkpoint::OwnedSnapshot snapshot = std::move(found->second);
  waiting_snapshots_.erase(found);
  snapshot.snapshot.ledger = reply.ledger();
  const absl::Time start = Clock::Real().Now();
  saver_->Submit(
      std::move(snapshot), [send = send_, step = reply.step(),
                            start](const absl::StatusOr<std::string>& path) {
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
  if (leaving_ && waiting_snapshots_.empty()) StartLeaving();
}

void JobRunner::FinishCheckpoints() {
  if (saver_ == nullptr) return;
  const absl::Status status = saver_->Flush(kSaveTimeout);
  if (!status.ok()) LogError("saving the last checkpoint: ", status.message());
}

void JobRunner::StartLeaving() {
  if (!leaving_) {
    leaving_ = true;
    SendProgress();
    // A lone worker takes the model with it: leave a copy behind.
    if (trainer_ != nullptr && CheckpointsWanted() &&
        last_checkpoint_step_ != replica_->step()) {
      BeginCheckpoint();
    }
  }
  if (!waiting_snapshots_.empty()) return;
  FinishCheckpoints();
  v1::WorkerMessage message;
  message.mutable_leaving()->set_reason("SIGTERM");
  send_(std::move(message));
  exit_code_ = 0;
}

void JobRunner::Fail(const absl::Status& status) {
  LogError(status.message());
  v1::WorkerMessage message;
  message.mutable_fatal()->set_message(std::string(status.message()));
  send_(std::move(message));
  // The master says Stop; until then, nothing more is trained.
  training_over_ = true;
}

}  // namespace elasticdl::worker
