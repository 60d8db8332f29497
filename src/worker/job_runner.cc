#include "job_runner.h"

#include <utility>

#include "allreduce_trainer.h"
#include "checkpoint_rows.h"
#include "device.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/worker.h"
#include "model_summary.h"
#include "ps_trainer.h"

namespace elasticdl::worker {
namespace {

bool IsTraining(const v1::JobSpec& job) {
  return job.job_type() == v1::TRAINING_ONLY ||
         job.job_type() == v1::TRAINING_WITH_EVALUATION;
}

bool HasServers(const v1::JobSpec& job) {
  return IsTraining(job) && job.num_ps_pods() > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobRunner>> JobRunner::Create(
    const v1::Welcome& welcome, const Deps& deps) {
  std::unique_ptr<JobRunner> runner(new JobRunner(welcome, deps));
  ELASTICDL_RETURN_IF_ERROR(runner->SetUp(welcome));
  return runner;
}

JobRunner::JobRunner(const v1::Welcome& welcome, const Deps& deps)
    : job_(welcome.job()),
      worker_id_(welcome.worker_id()),
      deps_(deps),
      telemetry_(job_.timeline(), deps.send),
      data_(job_, deps.model, deps.environment, deps.events,
            deps.execution.device),
      reports_(deps.send) {
  data_.SetRecorder(telemetry_.recorder());
}

JobRunner::~JobRunner() {
  if (evaluator_ != nullptr) evaluator_->Stop();
  if (predictor_ != nullptr) predictor_->Stop();
}

absl::Status JobRunner::SetUp(const v1::Welcome& welcome) {
  watchdog_ = deps_.environment.MakeWatchdog(
      absl::Seconds(job_.step_timeout_seconds()),
      [this](const std::string& where, absl::Duration age) {
        SendStuck(where, age);
      });
  if (IsTraining(job_)) {
    Execution execution = deps_.execution;
    execution.keep = job_.keep_state() && !HasServers(job_);
    model::NetworkOptions options{job_.seed(), HasServers(job_),
                                  job_.embedding_layer_limit()};
    // The first rank of the first world makes them; to all others it gives its
    // own, or they come from a checkpoint.
    options.late_values = !HasServers(job_);
    ELASTICDL_ASSIGN_OR_RETURN(
        replica_, Replica::Create(deps_.model, options, /*with_optimizer=*/true,
                                  execution));
    telemetry_.SetClock(&replica_->step_clock());
    ELASTICDL_RETURN_IF_ERROR(SetUpTraining(welcome));
  } else {
    ELASTICDL_RETURN_IF_ERROR(SetUpTrained(welcome.restore_from()));
  }
  if (!job_.validation_data().empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(model::MetricSet metrics,
                               deps_.model.CreateMetrics());
    ELASTICDL_ASSIGN_OR_RETURN(
        auto source,
        data_.MakePipeline(job_.validation_data(), Mode::kEvaluation,
                           Event::Kind::kOther));
    evaluator_ = std::make_unique<Evaluator>(
        // Rows come from servers, and one of them may be away for long.
        Evaluator::Deps{*replica_, reports_,
                        HasServers(job_) ? nullptr : watchdog_.get()},
        std::move(metrics), std::move(source));
  }
  return job_.prediction_data().empty() ? absl::OkStatus() : SetUpPrediction();
}

absl::Status JobRunner::SetUpTrained(const std::string& path) {
  if (path.empty()) return CreateTrained(trained_, /*restored=*/false);
  checkpoint::LoadOptions load;
  load.only_model = true;
  // Into the model's own memory: what the network is depends on the tables.
  load.place = [this](checkpoint::Loaded& loaded) -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(CreateTrained(loaded, /*restored=*/true));
    return replica_->PlaceCheckpoint(loaded);
  };
  ELASTICDL_ASSIGN_OR_RETURN(trained_,
                             deps_.environment.LoadCheckpoint(path, load));
  if (replica_ == nullptr) {
    ELASTICDL_RETURN_IF_ERROR(CreateTrained(trained_, /*restored=*/true));
  }
  ELASTICDL_RETURN_IF_ERROR(replica_->Restore(trained_));
  if (!trained_.embedding_tables.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        rows_, CheckpointRows::Create(trained_, replica_->network().tables(),
                                      job_.seed()));
    replica_->SetRowSource(rows_.get());
  } else {
    trained_ = checkpoint::Loaded();
  }
  LogInfo("restored ", path, " (step ", replica_->step(), ")");
  return absl::OkStatus();
}

absl::Status JobRunner::CreateTrained(const checkpoint::Loaded& trained,
                                      bool restored) {
  // Ids of any value have rows of their own there, as they had on the servers.
  const bool tables = !trained.embedding_tables.empty();
  model::NetworkOptions options{job_.seed(), tables};
  for (const checkpoint::EmbeddingRows& rows : trained.embedding_tables) {
    options.layers.insert(rows.name);
  }
  options.late_values = restored;
  Execution execution = deps_.execution;
  // Rows of tables are in the memory of the host.
  if (tables) execution.device = c10::Device(c10::kCPU);
  ELASTICDL_ASSIGN_OR_RETURN(
      replica_, Replica::Create(deps_.model, options, /*with_optimizer=*/false,
                                execution));
  return absl::OkStatus();
}

absl::Status JobRunner::SetUpTraining(const v1::Welcome& welcome) {
  if (HasServers(job_)) {
    ELASTICDL_ASSIGN_OR_RETURN(
        trainer_, PsTrainer::Create({job_, worker_id_, deps_.link.secret,
                                     welcome.servers(), welcome.restore_from(),
                                     welcome.await_model(), deps_.model,
                                     *replica_, data_, reports_, deps_.events,
                                     deps_.send, deps_.environment}));
    return absl::OkStatus();
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      auto trainer, AllReduceTrainer::Create(
                        {job_, worker_id_, deps_.link, deps_.model, *replica_,
                         data_, reports_, deps_.events, deps_.send,
                         deps_.environment, watchdog_.get()}));
  if (welcome.has_warm_up()) {
    ELASTICDL_RETURN_IF_ERROR(trainer->WarmUp(welcome.warm_up()));
  }
  trainer_ = std::move(trainer);
  return absl::OkStatus();
}

absl::Status JobRunner::SetUpPrediction() {
  PredictionOutput output;
  ELASTICDL_ASSIGN_OR_RETURN(
      output.processor,
      deps_.model.CreatePredictionProcessor(job_.prediction_output_dir()));
  if (output.processor == nullptr) {
    ELASTICDL_ASSIGN_OR_RETURN(
        output.writer,
        PredictionWriter::Open(job_.prediction_output_dir(), worker_id_));
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      auto source, data_.MakePipeline(job_.prediction_data(), Mode::kPrediction,
                                      Event::Kind::kOther));
  predictor_ = std::make_unique<Predictor>(
      Predictor::Deps{worker_id_, *replica_, reports_, watchdog_.get()},
      std::move(output), std::move(source));
  return absl::OkStatus();
}

// ---- other threads ----

void JobRunner::Receive(v1::MasterMessage message) {
  if (message.has_trace_echo()) {
    return telemetry_.OnEcho(message.trace_echo());
  }
  if (message.has_task()) {
    last_task_id_ = message.task().task_id();
    const v1::TaskType type = message.task().type();
    if (type == v1::EVALUATION && evaluator_ != nullptr) {
      return evaluator_->AddTask(std::move(*message.mutable_task()));
    }
    if (type == v1::PREDICTION && predictor_ != nullptr) {
      return predictor_->AddTask(std::move(*message.mutable_task()));
    }
  }
  if (trainer_ != nullptr && trainer_->Hear(message)) return;
  Event event;
  event.message = std::move(message);
  deps_.events.Push(std::move(event));
}

void JobRunner::OnMasterLost() {
  if (trainer_ != nullptr) trainer_->Abort("the master is lost");
  deps_.events.PushKind(Event::Kind::kMasterLost);
}

void JobRunner::OnMasterBack() {
  // The step at hand may wait for members that heard less of the old master
  // than this one, and the new one waits for all of them to be back. It forms a
  // new world in any case.
  if (trainer_ != nullptr) trainer_->Interrupt("there is a new master");
  Event event;
  event.kind = Event::Kind::kMasterBack;
  event.master = ++masters_;
  deps_.events.Push(std::move(event));
}

void JobRunner::SendStuck(const std::string& where, absl::Duration age) {
  LogError("stuck in ", where, " for ", absl::FormatDuration(age));
  v1::WorkerMessage message;
  message.mutable_stuck()->set_where(where);
  message.mutable_stuck()->set_seconds(absl::ToDoubleSeconds(age));
  deps_.send(std::move(message));
}

// ---- the loop ----

int JobRunner::Run() {
  v1::Ready ready;
  if (predictor_ != nullptr && predictor_->ignores_output_dir()) {
    ready.set_note(
        "the model's own processor of predictions takes no folder: "
        "--prediction_output_dir has no effect");
  }
  const absl::Status described = OnDevice("describing the model", [&] {
    *ready.mutable_model() =
        SummarizeModel(replica_->network(), replica_->optimizer_spec());
    return absl::OkStatus();
  });
  if (!described.ok()) LogWarning("no summary: ", described.message());
  const absl::Status shards = data_.AddShards(ready);
  if (!shards.ok()) {
    Fail(shards);
  } else {
    SendReady(std::move(ready));
  }
  while (!exit_code_.has_value()) {
    const bool work = HasWork();
    if (!work && trainer_ != nullptr && deps_.events.empty()) {
      trainer_->BeforeWaiting();
    }
    const std::optional<Event> event = NextEvent(work);
    replica_->step_clock().Enter(trace::Kind::kOther);
    telemetry_.Tick(deps_.environment.clock().Now());
    const auto turn = [&]() -> absl::Status {
      if (event.has_value()) return Handle(*event);
      return work ? trainer_->Work() : absl::OkStatus();
    };
    // Each part guards its own work on the device, with better words. Without a
    // device, whatever is thrown ends this process, which is replaced.
    const absl::Status status =
        replica_->on_cpu() ? turn() : OnDevice("working", turn);
    if (!status.ok()) Fail(status);
  }
  return *exit_code_;
}

bool JobRunner::HasWork() const {
  // After a failure the master says Stop; until then, nothing is trained.
  return trainer_ != nullptr && !failure_.has_value() && trainer_->HasWork();
}

std::optional<Event> JobRunner::NextEvent(bool work) {
  const bool data = !work && trainer_ != nullptr && trainer_->WaitsForData();
  const elastic::Watchdog::Watch watch(data ? watchdog_.get() : nullptr,
                                       "reading data");
  return deps_.events.Pop(work ? absl::ZeroDuration()
                               : absl::InfiniteDuration());
}

absl::Status JobRunner::Handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kMessage:
      return HandleMessage(event);
    case Event::Kind::kOther:
      if (trainer_ != nullptr) {
        const absl::Status refreshed = trainer_->Refresh();
        // Stop is on its way through the queue.
        if (absl::IsCancelled(refreshed)) return absl::OkStatus();
        ELASTICDL_RETURN_IF_ERROR(refreshed);
      }
      replica_->step_clock().Enter(trace::Kind::kEvaluate);
      return event.minibatch->task().type() == v1::EVALUATION
                 ? evaluator_->Evaluate(*event.minibatch)
                 : predictor_->Predict(*event.minibatch);
    case Event::Kind::kLeave:
      Leave();
      break;
    case Event::Kind::kMasterBack:
      // That one is gone, too; the next has its own event.
      if (event.master != masters_) return absl::OkStatus();
      RepeatReports();
      break;
    case Event::Kind::kMasterLost:
      exit_code_ = leaving_ ? 0 : kExitMasterLost;
      return absl::OkStatus();
    case Event::Kind::kTraining:
    case Event::Kind::kWorldConnected:
    case Event::Kind::kSaveDone:
      break;
  }
  return trainer_ == nullptr ? absl::OkStatus() : trainer_->Handle(event);
}

absl::Status JobRunner::HandleMessage(const Event& event) {
  if (event.message.has_stop()) {
    LogInfo("stopping: ", event.message.stop().reason());
    ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.stop"));
    if (trainer_ != nullptr) trainer_->Finish();
    telemetry_.Flush(deps_.environment.clock().Now());
    exit_code_ = event.message.stop().exit_code();
    return absl::OkStatus();
  }
  return trainer_ == nullptr ? absl::OkStatus() : trainer_->Handle(event);
}

void JobRunner::Leave() {
  const bool first = !std::exchange(leaving_, true);
  // A trainer says it when it has reported its last step.
  if (trainer_ == nullptr && first) SendLeaving();
}

void JobRunner::SendLeaving() {
  v1::WorkerMessage message;
  message.mutable_leaving()->set_reason("SIGTERM");
  deps_.send(std::move(message));
}

void JobRunner::RepeatReports() {
  v1::Ready ready;
  ready.set_has_state(trainer_ != nullptr && trainer_->has_state());
  ready.set_last_task_id(last_task_id_);
  // The master before may have died before it knew them.
  const absl::Status shards = data_.AddShards(ready);
  if (!shards.ok()) return Fail(shards);
  SendReady(std::move(ready));
  reports_.Repeat();
  if (failure_.has_value()) SendFatal();
  if (leaving_ && trainer_ == nullptr) {
    leaving_ = false;
    Leave();
  }
}

void JobRunner::SendReady(v1::Ready ready) {
  ready.set_step(replica_->step());
  ready.set_host(collective::LocalHost());
  ready.set_nccl(deps_.link.backend.nccl != nullptr);
  if (replica_->kept() != nullptr) {
    replica_->kept()->SetOwner(worker_id_);
    ready.set_kept_fd(replica_->kept()->fd());
  }
  v1::WorkerMessage message;
  *message.mutable_ready() = std::move(ready);
  deps_.send(std::move(message));
}

void JobRunner::SendFatal() {
  v1::WorkerMessage message;
  message.mutable_fatal()->set_message(*failure_);
  deps_.send(std::move(message));
}

void JobRunner::Fail(const absl::Status& status) {
  LogError(status.message());
  // A model that does not fit before the end of its first step fits nowhere.
  // Later, it is about this worker's GPU, or about the data at hand.
  if (IsDeviceFailure(status) ||
      (IsOutOfDeviceMemory(status) && replica_->step() > 0)) {
    exit_code_ = kExitDevice;
    return;
  }
  if (deps_.events.asked_to_leave()) {
    // Not the job's fault, as far as anybody can tell: it just goes.
    SendLeaving();
    exit_code_ = 0;
    return;
  }
  failure_ = std::string(status.message());
  SendFatal();
}

}  // namespace elasticdl::worker
