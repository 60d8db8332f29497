#include "ps_trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "server_export.h"

namespace elasticdl::worker {
namespace {

ps::Client::Options ClientOptions(const std::string& secret,
                                  ps::ServerBook& book) {
  ps::Client::Options options;
  options.secret = secret;
  // The master decides when a server is given up; then it says Stop.
  options.patience = absl::Hours(24);
  options.find = [&book](int server, absl::Duration timeout) {
    return book.Find(server, timeout);
  };
  return options;
}

// The newest that the master knew; servers tell of newer ones.
ps::BucketMap FirstMap(const v1::Servers& servers, int num_servers) {
  const v1::PsMap& map = servers.map();
  auto made = ps::BucketMap::Make(map.version(), map.servers(),
                                  {map.owners().begin(), map.owners().end()});
  return made.ok() ? *std::move(made) : ps::BucketMap::Even(num_servers);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsTrainer>> PsTrainer::Create(const Deps& deps) {
  std::unique_ptr<PsTrainer> trainer(new PsTrainer(deps));
  ELASTICDL_RETURN_IF_ERROR(trainer->SetUp());
  return trainer;
}

PsTrainer::PsTrainer(const Deps& deps)
    : deps_(deps),
      async_(deps.job.use_async()),
      book_(deps.servers),
      client_(ClientOptions(deps.secret, book_),
              FirstMap(deps.servers, deps.job.num_ps_pods())),
      // A synchronous gradient must be computed on the newest version.
      pipe_(client_, deps.replica, async_ && !deps.job.ps_no_overlap()),
      last_report_(deps.environment.clock().Now()) {}

PsTrainer::~PsTrainer() {
  if (source_ != nullptr) source_->Stop();
  Abort("the worker ends");
}

absl::Status PsTrainer::SetUp() {
  learning_rate_ = deps_.replica.learning_rate();
  ELASTICDL_ASSIGN_OR_RETURN(callbacks_, deps_.model.CreateCallbacks());
  deps_.replica.SetRowSource(pipe_.rows());
  std::unique_ptr<checkpoint::Saver> saver;
  if (!deps_.job.checkpoint_dir().empty()) {
    checkpoint::SaveOptions options;
    options.keep_max = deps_.job.keep_checkpoint_max();
    saver = deps_.environment.MakeSaver(deps_.job.checkpoint_dir(), options);
  }
  saver_ = std::make_unique<ServerSaver>(
      ServerSaver::Deps{client_, deps_.replica, pipe_.dense(), deps_.send,
                        deps_.environment.clock(), deps_.job.checkpoint_dir()},
      std::move(saver));
  ELASTICDL_ASSIGN_OR_RETURN(
      source_,
      deps_.data.MakePipeline(deps_.job.training_data(), Mode::kTraining,
                              Event::Kind::kTraining));
  return absl::OkStatus();
}

// ---- servers ----

v1::PsDefinition PsTrainer::Definition() const {
  v1::PsDefinition definition;
  definition.set_optimizer(deps_.replica.optimizer_spec());
  definition.set_seed(deps_.job.seed());
  definition.set_run(deps_.job.run());
  definition.set_lr_staleness_modulation(async_ &&
                                         deps_.job.lr_staleness_modulation());
  pipe_.dense().AddTo(definition);
  for (const ShardedTable& table : deps_.replica.network().tables()) {
    v1::PsDefinition::Table& out = *definition.add_tables();
    out.set_name(table.name);
    out.set_dim(table.dim);
    out.set_initializer(table.initializer);
    out.set_dtype(deps_.job.embedding_dtype());
    out.set_max_rows(deps_.job.embedding_max_rows());
    out.set_eviction(deps_.job.embedding_eviction());
    out.set_min_count(deps_.job.embedding_min_count());
  }
  return definition;
}

absl::Status PsTrainer::Connect() {
  if (connected_) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(client_.Define(Definition()));
  ELASTICDL_RETURN_IF_ERROR(deps_.await_model ? AwaitModel() : GiveModel());
  connected_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> PsTrainer::HaveModel() {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<v1::PsReply> servers,
                             client_.Status(/*digest=*/false));
  return std::all_of(
      servers.begin(), servers.end(),
      [](const v1::PsReply& reply) { return reply.status().initialized(); });
}

absl::Status PsTrainer::AwaitModel() {
  Backoff backoff(Backoff::Options(), static_cast<uint64_t>(deps_.worker_id));
  while (true) {
    ELASTICDL_ASSIGN_OR_RETURN(const bool there, HaveModel());
    if (there) return absl::OkStatus();
    ELASTICDL_RETURN_IF_ERROR(book_.Wait(backoff.Next()));
  }
}

absl::Status PsTrainer::GiveModel() {
  ELASTICDL_ASSIGN_OR_RETURN(const bool there, HaveModel());
  if (there) return absl::OkStatus();
  if (deps_.restore_from.empty()) {
    // The same on every worker: they follow from the seed.
    return client_.SetInitialValues(pipe_.dense().Values().data());
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      checkpoint::Loaded loaded,
      deps_.environment.LoadCheckpoint(deps_.restore_from, {}));
  ELASTICDL_RETURN_IF_ERROR(saver_->Restore(loaded));
  LogInfo("gave ", deps_.restore_from, " (step ", loaded.version,
          ") to the servers");
  return absl::OkStatus();
}

absl::Status PsTrainer::WithModel(const std::function<absl::Status()>& pull) {
  ELASTICDL_RETURN_IF_ERROR(Connect());
  absl::Status status = pull();
  if (!absl::IsNotFound(status)) return status;
  // A server has lost its log. If anything was committed, the master fails the
  // job; else the model begins again.
  ELASTICDL_RETURN_IF_ERROR(FinishPush());
  ELASTICDL_RETURN_IF_ERROR(pipe_.Finish());
  connected_ = false;
  ELASTICDL_RETURN_IF_ERROR(Connect());
  return pull();
}

absl::Status PsTrainer::Refresh() {
  ELASTICDL_RETURN_IF_ERROR(FinishPush());
  ELASTICDL_RETURN_IF_ERROR(WithModel([this] { return pipe_.Refresh(); }));
  deps_.replica.SetStep(pipe_.version());
  since_pull_ = 0;
  return absl::OkStatus();
}

absl::Status PsTrainer::UnlessCancelled(const absl::Status& status) const {
  if (absl::IsCancelled(status) || absl::IsCancelled(pipe_.rows_status())) {
    return absl::OkStatus();
  }
  return status;
}

// ---- events ----

bool PsTrainer::Hear(const v1::MasterMessage& message) {
  if (message.has_task() && message.task().type() == v1::TRAINING) {
    source_->Add(message.task());
    return true;
  }
  if (message.has_servers()) {
    // A host that is gone does not say that it will not answer.
    for (const int server : book_.Set(message.servers())) {
      client_.OnMoved(server);
    }
    return true;
  }
  // The training thread may be waiting for a server.
  if (message.has_stop()) Abort("the worker is to stop");
  return false;
}

void PsTrainer::Abort(const std::string& reason) {
  book_.Cancel();
  client_.Cancel();
}

absl::Status PsTrainer::Handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kMessage:
      return HandleMessage(event.message);
    case Event::Kind::kTraining:
      pending_.push_back({event.minibatch, std::nullopt});
      return absl::OkStatus();
    case Event::Kind::kMasterBack:
      // The new master may not have heard these, and it knows of no pause.
      paused_ = false;
      reported_records_ = -1;
      if (async_) Report();
      if (staged_.has_value()) SendStaged();
      if (!idle_sent_ && !leaving_) return absl::OkStatus();
      idle_sent_ = false;
      [[fallthrough]];
    case Event::Kind::kLeave: {
      if (event.kind == Event::Kind::kLeave) leaving_ = true;
      if (over_) SendIdle();
      if (!leaving_) return absl::OkStatus();
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(FinishPush()));
      Report();
      v1::WorkerMessage message;
      message.mutable_leaving()->set_reason("SIGTERM");
      deps_.send(std::move(message));
      return absl::OkStatus();
    }
    case Event::Kind::kWorldConnected:
    case Event::Kind::kSaveDone:
    case Event::Kind::kOther:
    case Event::Kind::kMasterLost:
      break;
  }
  return absl::OkStatus();
}

absl::Status PsTrainer::HandleMessage(const v1::MasterMessage& message) {
  switch (message.message_case()) {
    case v1::MasterMessage::kTask:
      return TrainEnd(message.task());
    case v1::MasterMessage::kTrainingDone:
      over_ = true;
      staged_.reset();
      pending_.clear();
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(FinishPush()));
      SendIdle();
      return absl::OkStatus();
    case v1::MasterMessage::kPause:
      paused_ = true;
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(FinishPush()));
      SendPaused(message.pause().number());
      return absl::OkStatus();
    case v1::MasterMessage::kResume:
      paused_ = false;
      return absl::OkStatus();
    case v1::MasterMessage::kSaveNow:
      // A worker that had no data yet does not know the servers' parts.
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(Connect()));
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(FinishPush()));
      ELASTICDL_RETURN_IF_ERROR(UnlessCancelled(pipe_.Finish()));
      saver_->OnSaveNow(message.save_now());
      return absl::OkStatus();
    case v1::MasterMessage::kLedger:
      saver_->OnLedger(message.ledger());
      return absl::OkStatus();
    case v1::MasterMessage::kPushResult:
      return OnPushResult(message.push_result());
    case v1::MasterMessage::kEvaluationDone:
      return OnEvaluationDone(message.evaluation_done());
    default:
      return absl::OkStatus();
  }
}

absl::Status PsTrainer::OnPushResult(const v1::PushResult& result) {
  // Of a minibatch that was given up meanwhile.
  if (!staged_.has_value() ||
      staged_->range().begin() != result.range().begin() ||
      staged_->range().shard() != result.range().shard() ||
      staged_->range().epoch() != result.range().epoch()) {
    return absl::OkStatus();
  }
  staged_.reset();
  // Version 0: it stays the next one to compute.
  if (result.version() == 0) return absl::OkStatus();
  const std::shared_ptr<Minibatch> minibatch = pending_.front().minibatch;
  pending_.pop_front();
  source_->Release();
  AfterMinibatch(*minibatch);
  return absl::OkStatus();
}

absl::Status PsTrainer::OnEvaluationDone(const v1::EvaluationDone& done) {
  if (done.step() <= evaluated_step_ || done.metrics().empty()) {
    return absl::OkStatus();
  }
  evaluated_step_ = done.step();
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnEvaluationEnd(
      done.step(), {done.metrics().begin(), done.metrics().end()}));
  AskStopIfWanted();
  return absl::OkStatus();
}

absl::Status PsTrainer::TrainEnd(const v1::Task& task) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.train_end"));
  ELASTICDL_RETURN_IF_ERROR(callbacks_->OnTrainEnd());
  const std::string& output = deps_.job.output();
  v1::ExportedRows rows;
  if (!output.empty()) {
    ELASTICDL_RETURN_IF_ERROR(Refresh());
    // Nobody pushes any more; a crashed worker may have left a push half done.
    client_.AllowDifferentVersions();
    ELASTICDL_ASSIGN_OR_RETURN(
        rows, ExportFromServers(output, {deps_.model, deps_.replica.network(),
                                         client_, deps_.job.seed()}));
    LogInfo("exported the model to ", output);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.exported"));
  }
  deps_.reports.TrainEnd(task, rows);
  return absl::OkStatus();
}

// ---- messages ----

void PsTrainer::BeforeWaiting() {
  Report();
  const bool wants_data = !over_ && !leaving_ && !paused_;
  deps_.replica.step_clock().Enter(staged_.has_value()
                                       ? trace::Kind::kCommunication
                                   : wants_data ? trace::Kind::kDataWait
                                                : trace::Kind::kIdle);
}

void PsTrainer::Report() {
  if (!async_ || reported_records_ == trained_records_) return;
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  v1::RecordTotal& total = *progress.add_totals();
  total.set_worker_id(deps_.worker_id);
  total.set_records(trained_records_);
  progress.set_loss(last_loss_);
  progress.set_learning_rate(learning_rate_);
  reported_records_ = trained_records_;
  last_report_ = deps_.environment.clock().Now();
  deps_.send(std::move(message));
}

void PsTrainer::SendStaged() {
  v1::WorkerMessage message;
  *message.mutable_staged() = *staged_;
  deps_.send(std::move(message));
}

void PsTrainer::SendIdle() {
  if (std::exchange(idle_sent_, true)) return;
  Report();
  v1::WorkerMessage message;
  message.mutable_idle();
  deps_.send(std::move(message));
}

void PsTrainer::SendPaused(int64_t number) {
  Report();
  v1::WorkerMessage message;
  message.mutable_paused()->set_number(number);
  deps_.send(std::move(message));
}

void PsTrainer::AskStopIfWanted() {
  const auto reason = callbacks_->stop_reason();
  if (!reason.has_value() || std::exchange(stop_sent_, true)) return;
  v1::WorkerMessage message;
  message.mutable_stop_training()->set_reason(*reason);
  deps_.send(std::move(message));
}

void PsTrainer::Finish() {
  if (trained_records_ > 0) {
    LogInfo("trained ", trained_records_, " records here");
  }
  saver_->Flush();
}

}  // namespace elasticdl::worker
