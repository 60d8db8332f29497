#include "allreduce_trainer.h"

#include <algorithm>
#include <utility>

#include "device.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

// Steps that are left out of the speed told at the end.
constexpr int64_t kWarmUpSteps = 20;

GradientCompression ToCompression(const std::string& name) {
  if (name == "bf16") return GradientCompression::kBFloat16;
  if (name == "fp16") return GradientCompression::kFloat16;
  return GradientCompression::kNone;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AllReduceTrainer>> AllReduceTrainer::Create(
    const Deps& deps) {
  std::unique_ptr<AllReduceTrainer> trainer(new AllReduceTrainer(deps));
  ELASTICDL_RETURN_IF_ERROR(trainer->SetUp());
  return trainer;
}

AllReduceTrainer::~AllReduceTrainer() {
  if (source_ != nullptr) source_->Stop();
}

absl::Status AllReduceTrainer::SetUp() {
  learning_rate_ = deps_.replica.learning_rate();
  ELASTICDL_ASSIGN_OR_RETURN(callbacks_, deps_.model.CreateCallbacks());
  rendezvous::WorldLink::Options link = deps_.link;
  link.worker_id = deps_.worker_id;
  if (!deps_.job.collective().empty()) {
    link.backend.backend = deps_.job.collective();
  }
  // All members must offer the same, whatever device each of them has got.
  if (link.backend.backend == "auto" && deps_.job.device() != "cpu") {
    link.backend.backend = "nccl";
  }
  link_ = deps_.environment.MakeLink(
      link, deps_.send, [&events = deps_.events](int64_t generation) {
        Event event;
        event.kind = Event::Kind::kWorldConnected;
        event.generation = generation;
        events.Push(std::move(event));
      });
  TrainingSession::Options options;
  options.watchdog = deps_.watchdog;
  options.device_sum_timeout =
      DeviceSumTimeout(absl::Seconds(deps_.job.step_timeout_seconds()));
  if (deps_.job.load_timeout_seconds() > 0) {
    options.load_timeout = absl::Seconds(deps_.job.load_timeout_seconds());
  }
  options.background_join_bytes = deps_.job.background_join_bytes();
  options.join_bandwidth = deps_.job.join_bandwidth();
  options.worker_id = deps_.worker_id;
  options.minibatch_size = deps_.job.minibatch_size();
  options.global_batch_size = deps_.job.global_batch_size();
  options.accumulation_steps =
      std::max<int64_t>(1, deps_.job.accumulation_steps());
  options.histogram_steps = deps_.job.tensorboard_histograms();
  options.compression = ToCompression(deps_.job.grad_compression());
  options.halt_at = [this](int64_t step) { return HaltAt(step); };
  deps_.replica.SetWatchdog(deps_.watchdog);
  ELASTICDL_RETURN_IF_ERROR(OnDevice("setting up training", [&] {
    session_ = std::make_unique<TrainingSession>(
        options, TrainingSession::Deps{deps_.replica, *link_, deps_.send,
                                       deps_.environment});
    return absl::OkStatus();
  }));
  ELASTICDL_ASSIGN_OR_RETURN(
      source_,
      deps_.data.MakePipeline(deps_.job.training_data(), Mode::kTraining,
                              Event::Kind::kTraining));
  session_->released = [this] { source_->Release(); };

  std::unique_ptr<checkpoint::Saver> saver;
  if (!deps_.job.checkpoint_dir().empty()) {
    checkpoint::SaveOptions save;
    save.keep_max = deps_.job.keep_checkpoint_max();
    saver = deps_.environment.MakeSaver(deps_.job.checkpoint_dir(), save);
  }
  checkpoints_ = std::make_unique<CheckpointCoordinator>(
      CheckpointCoordinator::Deps{deps_.job.checkpoint_steps(), deps_.replica,
                                  *session_, deps_.events, deps_.send,
                                  deps_.environment.clock()},
      std::move(saver));
  return absl::OkStatus();
}

absl::Status AllReduceTrainer::WarmUp(const v1::Task& task) {
  ELASTICDL_ASSIGN_OR_RETURN(const Batch batch, deps_.data.ReadOne(task));
  return session_->WarmUp(batch);
}

// ---- events ----

void AllReduceTrainer::Interrupt(const std::string& reason) {
  link_->Break(reason);
  checkpoints_->HurryUp(reason);
}

void AllReduceTrainer::Abort(const std::string& reason) {
  link_->AbortAll(reason);
  checkpoints_->HurryUp(reason);
}

bool AllReduceTrainer::Hear(const v1::MasterMessage& message) {
  if (message.has_prepare() && message.prepare().urgent()) {
    checkpoints_->HurryUp("the world has ended");
  }
  if (message.has_task() && message.task().type() == v1::TRAINING) {
    session_->AnnounceTask();
    source_->Add(message.task());
    return true;
  }
  return session_->Hear(message);
}

absl::Status AllReduceTrainer::Handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kMessage:
      return HandleMessage(event.message);
    case Event::Kind::kTraining:
      session_->AddMinibatch(event.minibatch);
      return absl::OkStatus();
    case Event::Kind::kWorldConnected:
      session_->OnConnected(event.generation);
      return absl::OkStatus();
    case Event::Kind::kSaveDone:
      checkpoints_->OnSaveDone();
      // One that became due meanwhile: no step follows after which it would be
      // saved.
      if (session_->halted()) {
        ELASTICDL_RETURN_IF_ERROR(checkpoints_->OnStep());
      }
      return SaveLast();
    case Event::Kind::kLeave:
      Leave();
      return absl::OkStatus();
    case Event::Kind::kMasterBack:
      checkpoints_->OnMasterBack();
      // The new master has not heard it.
      leaving_sent_ = false;
      if (leaving_) Leave();
      return absl::OkStatus();
    case Event::Kind::kOther:
    case Event::Kind::kMasterLost:
      break;
  }
  return absl::OkStatus();
}

absl::Status AllReduceTrainer::HandleMessage(const v1::MasterMessage& message) {
  switch (message.message_case()) {
    case v1::MasterMessage::kTask:
      return TrainEnd(message.task());
    case v1::MasterMessage::kTrainingDone:
      return session_->End(message.training_done().generation())
                 ? AfterHalt()
                 : absl::OkStatus();
    case v1::MasterMessage::kEvaluateNow:
      session_->AskEvaluation();
      return absl::OkStatus();
    case v1::MasterMessage::kEvaluationDone:
      return OnEvaluationDone(message.evaluation_done());
    case v1::MasterMessage::kLedger:
      return OnLedger(message.ledger());
    // The session knows already; the event only wakes the loop.
    case v1::MasterMessage::kNoMoreTasks:
      return absl::OkStatus();
    default:
      session_->OnMessage(message);
      return absl::OkStatus();
  }
}

absl::Status AllReduceTrainer::OnEvaluationDone(
    const v1::EvaluationDone& done) {
  heard_step_ = done.step();
  if (session_->halted() && done.step() >= deps_.replica.step()) {
    session_->Resume();
  }
  if (done.step() <= evaluated_step_ || done.metrics().empty()) {
    return absl::OkStatus();
  }
  evaluated_step_ = done.step();
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnEvaluationEnd(
      done.step(), {done.metrics().begin(), done.metrics().end()}));
  AskStopIfWanted();
  return absl::OkStatus();
}

absl::Status AllReduceTrainer::OnLedger(const v1::LedgerReply& reply) {
  if (checkpoints_->OnLedger(reply)) return absl::OkStatus();
  if (session_->over() && session_->halted()) {
    ELASTICDL_RETURN_IF_ERROR(AfterHalt());
  }
  return SaveLast();
}

absl::Status AllReduceTrainer::TrainEnd(const v1::Task& task) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.train_end"));
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnTrainEnd());
  const std::string& output = deps_.job.output();
  if (!output.empty()) {
    ELASTICDL_RETURN_IF_ERROR(deps_.replica.Export(output));
    LogInfo("exported the model to ", output);
  }
  deps_.reports.Done(task, 0);
  return absl::OkStatus();
}

void AllReduceTrainer::Leave() {
  leaving_ = true;
  // Also in a world that it enters before the master lets it go: it is given no
  // data there, and the others must not wait for its part of a step.
  session_->StopTakingData();
  if (leaving_sent_) return;
  leaving_sent_ = true;
  session_->Report();
  v1::WorkerMessage message;
  message.mutable_leaving()->set_reason("SIGTERM");
  deps_.send(std::move(message));
  // The master says Stop when this worker is not needed any more: when others
  // have the model, or when it is saved (SaveLast).
}

// ---- work ----

void AllReduceTrainer::BeforeWaiting() {
  // Whoever watches should know how far we are.
  session_->Report();
  deps_.replica.step_clock().Enter(
      session_->WaitsForData() || session_->Starves() ? trace::Kind::kDataWait
                                                      : trace::Kind::kIdle);
  if (!session_->Starves()) return;
  v1::WorkerMessage message;
  message.mutable_starving();
  deps_.send(std::move(message));
}

absl::Status AllReduceTrainer::Work() {
  if (!session_->HasWorldToEnter()) {
    ELASTICDL_RETURN_IF_ERROR(BeginStep());
  } else {
    deps_.replica.step_clock().Enter(trace::Kind::kWorld);
  }
  ELASTICDL_ASSIGN_OR_RETURN(const WorkDone done,
                             session_->Work(learning_rate_));
  if (done.entered) ELASTICDL_RETURN_IF_ERROR(AfterEntering());
  if (done.stepped) ELASTICDL_RETURN_IF_ERROR(AfterStep(done));
  checkpoints_->OnRound();
  return done.halted ? AfterHalt() : absl::OkStatus();
}

absl::Status AllReduceTrainer::BeginStep() {
  const int64_t step = deps_.replica.step() + 1;
  if (callbacks_->empty() || begun_step_ == step) return absl::OkStatus();
  const elastic::Watchdog::Watch watch(deps_.watchdog, "callbacks");
  begun_step_ = step;
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnTrainBatchBegin(step));
  learning_rate_ =
      callbacks_->learning_rate().value_or(deps_.replica.learning_rate());
  return absl::OkStatus();
}

absl::Status AllReduceTrainer::AfterEntering() {
  const rendezvous::World& world = *session_->world();
  deps_.replica.step_clock().BeginAfter(deps_.replica.step());
  checkpoints_->OnEntered(world);
  if (leaving_) Leave();
  if (session_->halted()) {
    // Whoever was to save this step may be dead, and no step follows after
    // which it would be due: others wait for it in vain.
    ELASTICDL_RETURN_IF_ERROR(checkpoints_->OnStep());
    ELASTICDL_RETURN_IF_ERROR(AfterHalt());
  }
  if (!world.last) return absl::OkStatus();
  // Also who was not asked to leave: the whole job is to stop.
  session_->StopTakingData();
  return SaveLast();
}

absl::Status AllReduceTrainer::AfterStep(const WorkDone& done) {
  const v1::JobSpec& job = deps_.job;
  const int64_t step = deps_.replica.step();
  trained_records_ += done.records;
  deps_.replica.step_clock().CountStep(step, done.records);
  SetLogPosition(
      session_->world() == nullptr ? -1 : session_->world()->generation, step);
  if (++steps_here_ == kWarmUpSteps) {
    measured_since_ = deps_.environment.clock().Now();
  } else if (steps_here_ > kWarmUpSteps) {
    measured_records_ += done.records;
  }
  if (job.log_loss_steps() > 0 && step % job.log_loss_steps() == 0) {
    LogInfo("step ", step, " loss ", done.loss, " lr ", learning_rate_);
  }
  ELASTICDL_RETURN_IF_ERROR(checkpoints_->OnStep());
  AskStopIfWanted();
  const TrainingSession::Halt halt = HaltAt(step);
  if (halt != TrainingSession::Halt::kNone) session_->AskHalt(halt);
  return absl::OkStatus();
}

TrainingSession::Halt AllReduceTrainer::HaltAt(int64_t step) const {
  const v1::JobSpec& job = deps_.job;
  if (job.max_step() > 0 && step >= job.max_step()) {
    return TrainingSession::Halt::kOver;
  }
  if (!job.validation_data().empty() && job.evaluation_steps() > 0 &&
      step > 0 && step % job.evaluation_steps() == 0) {
    return TrainingSession::Halt::kEvaluation;
  }
  return TrainingSession::Halt::kNone;
}

void AllReduceTrainer::AskStopIfWanted() {
  if (const auto reason = callbacks_->stop_reason(); reason.has_value()) {
    session_->AskStop(*reason);
  }
}

absl::Status AllReduceTrainer::AfterHalt() {
  if (!session_->over()) {
    v1::WorkerMessage message;
    message.mutable_evaluation_due()->set_step(deps_.replica.step());
    message.mutable_evaluation_due()->set_heard(heard_step_);
    deps_.send(std::move(message));
    return absl::OkStatus();
  }
  LogSpeed();
  // Who is still catching up has only a part of it.
  if (session_->has_state()) ELASTICDL_RETURN_IF_ERROR(LogModel());
  if (!session_->is_reporter()) return absl::OkStatus();
  if (!session_->stop_reason().empty()) SendStopTraining();
  ELASTICDL_RETURN_IF_ERROR(checkpoints_->SaveThis());
  v1::WorkerMessage message;
  message.mutable_idle()->set_generation(session_->world()->generation);
  deps_.send(std::move(message));
  return absl::OkStatus();
}

void AllReduceTrainer::SendStopTraining() {
  v1::WorkerMessage message;
  message.mutable_stop_training()->set_reason(session_->stop_reason());
  deps_.send(std::move(message));
}

absl::Status AllReduceTrainer::SaveLast() {
  const rendezvous::World* world = session_->world();
  if (world == nullptr || !world->last || !session_->is_reporter() ||
      saved_generation_ == world->generation) {
    return absl::OkStatus();
  }
  ELASTICDL_RETURN_IF_ERROR(checkpoints_->SaveThis());
  if (!checkpoints_->idle()) return absl::OkStatus();
  saved_generation_ = world->generation;
  v1::WorkerMessage message;
  message.mutable_saved()->set_generation(world->generation);
  deps_.send(std::move(message));
  return absl::OkStatus();
}

void AllReduceTrainer::Finish() {
  // The master ends the job when rank 0 is at rest. A member that was on its
  // way to the next world then, or whose last round broke because the others
  // had gone, has the same model and has not logged it yet.
  if (!leaving_ && has_state() && logged_step_ != deps_.replica.step()) {
    const absl::Status logged = LogModel();
    if (!logged.ok()) LogError(logged.message());
  }
  checkpoints_->Flush();
}

absl::Status AllReduceTrainer::LogModel() {
  ELASTICDL_ASSIGN_OR_RETURN(const uint32_t digest,
                             deps_.replica.StateDigest());
  logged_step_ = deps_.replica.step();
  LogInfo("model of step ", logged_step_, ": digest ",
          absl::Hex(digest, absl::kZeroPad8));
  return absl::OkStatus();
}

void AllReduceTrainer::LogSpeed() const {
  if (measured_records_ == 0) return;
  const double seconds =
      absl::ToDoubleSeconds(deps_.environment.clock().Now() - measured_since_);
  LogInfo("trained ", trained_records_, " records here (",
          static_cast<double>(measured_records_) / seconds,
          " records/s after the first ", kWarmUpSteps,
          " steps, evaluations included)");
}

}  // namespace elasticdl::worker
