#include "simulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/check.h"
#include "elasticdl/ledger.h"
#include "simulation_worker.h"
#include "test_execution.h"

namespace elasticdl::worker::test {
namespace {

// One line: the kind of the message and its fields.
std::string Describe(const google::protobuf::Message& message) {
  const auto* field = message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->oneof_decl(0));
  if (field == nullptr) return "nothing";
  const bool large = field->name() == "welcome" || field->name() == "offers" ||
                     field->name() == "ledger";
  return large ? field->name() : message.ShortDebugString();
}

}  // namespace

std::string SimulationOptions::ToString() const {
  return absl::StrCat(
      "seed=", seed, " workers=", workers,
      " shards=", absl::StrJoin(data.shards, "+"), " epochs=", data.epochs,
      " minibatch_size=", minibatch_size, " per_task=", minibatches_per_task,
      " checkpoint_steps=", checkpoint_steps,
      " evaluation_steps=", evaluation_steps,
      " global_batch_size=", global_batch_size, " max_step=", max_step,
      " stop_after=", stop_after, " background_joins=", background_joins,
      " join_bandwidth=", join_bandwidth, " live_saves=", live_saves,
      " keep_state=", keep_state, " kills=", kills, " leaves=", leaves,
      " joins=", joins, " master_deaths=", master_deaths, " flaps=", flaps,
      " hangs=", hangs, " slow_times=", slow_times,
      " damaged_loads=", damaged_loads, " failed_saves=", failed_saves,
      " slow_saves=", slow_saves, " failed_connections=", failed_connections);
}

// ---- the schedule ----

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      random_(options.seed),
      clock_(std::make_unique<SimClock>(now_)),
      network_(random_),
      faults_left_(options.most_faults),
      target_(options.workers) {
  network_.failures_per_mille = options.failed_connections;
  network_.shrinks_per_mille = 500;
}

Simulation::~Simulation() = default;

bool Simulation::Happens(int per_100000) {
  return static_cast<int>(random_() % 100000) < per_100000;
}

size_t Simulation::Living() const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(),
                    [](const auto& worker) { return !worker->ended; }));
}

void Simulation::StartMaster() {
  master::JobController::Options options;
  v1::JobSpec& job = options.job;
  job.set_job_name("simulated");
  job.set_job_type(options_.evaluation_steps > 0 ? v1::TRAINING_WITH_EVALUATION
                                                 : v1::TRAINING_ONLY);
  job.set_minibatch_size(static_cast<int32_t>(options_.minibatch_size));
  job.set_training_data("training");
  job.set_global_batch_size(options_.global_batch_size);
  job.set_background_join_bytes(options_.background_joins ? 1 : 0);
  job.set_join_bandwidth(options_.join_bandwidth);
  job.set_keep_state(options_.keep_state);
  if (options_.keep_state) {
    // What the master before has kept is gone with it.
    kept_ = std::make_unique<SimKeptStates>(*this);
    options.kept_states = kept_.get();
  }
  if (options_.checkpoint_steps > 0) {
    job.set_checkpoint_dir(kDisk);
    job.set_checkpoint_steps(options_.checkpoint_steps);
    options.membership.save_last = true;
  }
  options.tasks.training_shards = options_.data.LedgerShards();
  options.tasks.minibatch_size = options_.minibatch_size;
  options.tasks.num_minibatches_per_task = options_.minibatches_per_task;
  options.tasks.num_epochs = static_cast<int32_t>(options_.data.epochs);
  options.tasks.shuffle = true;
  options.tasks.seed = options_.seed;
  options.tasks.train_end_task = true;
  if (options_.evaluation_steps > 0) {
    job.set_validation_data("validation");
    job.set_evaluation_steps(options_.evaluation_steps);
    options.tasks.validation_shards = options_.data.ValidationShards();
    options.tasks.final_evaluation = true;
    options.evaluation.evaluation_steps = options_.evaluation_steps;
  }
  job.set_max_step(options_.max_step);
  options.tasks.max_step = options_.max_step;
  options.run = "run";
  options.search_checkpoint = [this](master::CheckpointQuery query) {
    queries_.push_back(std::move(query));
  };
  store_.list = [this]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    std::vector<checkpoint::Version> versions;
    for (const auto& [step, saved] : disk_) {
      versions.push_back({step, absl::StrCat(kDisk, "/version-", step),
                          saved.snapshot.snapshot.lineage});
    }
    return versions;
  };
  store_.load_ledger =
      [this](const std::string& path) -> absl::StatusOr<v1::Ledger> {
    const auto found = disk_.find(VersionOf(path));
    if (found == disk_.end()) return absl::NotFoundError(path);
    return *found->second.snapshot.snapshot.ledger;
  };
  options.fence = [this](const checkpoint::Lineage& lineage) {
    fence_ = lineage;
  };
  // The audit's place in the journal is counted in commits here.
  if (const auto keep = master::AuditBytesToKeep(journal_)) {
    commits_.resize(static_cast<size_t>(*keep));
  }
  options.replay = journal_;
  options.record = [this](const v1::JournalRecord& record) {
    if (records_to_death_ > 0 && --records_to_death_ == 0) throw Killed();
    journal_.push_back(record);
    journal_.back().set_audit_bytes(static_cast<int64_t>(commits_.size()));
  };
  auto controller =
      master::JobController::Create(std::move(options), *this, *this, now_);
  ELASTICDL_CHECK(controller.ok());
  controller_ = *std::move(controller);
  const absl::Status begun = controller_->Begin(now_);
  if (!begun.ok()) Wrong(absl::StrCat("journal: ", begun.message()));
}

void Simulation::StartWorker() {
  auto worker = std::make_unique<Worker>();
  worker->id = next_worker_id_++;
  Note(absl::StrCat("worker ", worker->id, " starts"));
  worker->model = MakeCountingModel(options_.data, options_.stop_after);
  worker->environment = std::make_unique<SimEnvironment>(*this, *worker);
  ConnectWorker(*worker, /*resuming=*/false);
  workers_.push_back(std::move(worker));
}

void Simulation::ConnectWorker(Worker& worker, bool resuming) {
  worker.connection = next_connection_++;
  worker.stream_open = true;
  worker.welcome = false;
  worker.to_master.clear();
  worker.to_worker.clear();
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_id(worker.id);
  message.mutable_hello()->set_resuming(resuming);
  worker.to_master.push_back(std::move(message));
}

void Simulation::DeliverToMaster(Worker& worker) {
  if (!worker.to_master.empty()) {
    const v1::WorkerMessage message = std::move(worker.to_master.front());
    worker.to_master.pop_front();
    ++report_.messages;
    if (message.has_caught_up()) ++report_.caught_up;
    Note(absl::StrCat(worker.id, " > ", Describe(message)));
    controller_->OnMessage(now_, worker.connection, message);
    return;
  }
  // The process has ended and everything that left it is here.
  worker.stream_open = false;
  Note(absl::StrCat(worker.id, " > end of stream"));
  controller_->OnClosed(now_, worker.connection,
                        worker.exit_code == 0
                            ? absl::OkStatus()
                            : absl::UnavailableError("stream broken"));
}

void Simulation::DeliverToWorker(Worker& worker) {
  Delivery delivery = std::move(worker.to_worker.front());
  worker.to_worker.pop_front();
  if (delivery.end.has_value()) {
    Note(absl::StrCat(worker.id, " < end of stream"));
    worker.stream_open = false;
    if (worker.runner != nullptr) {
      worker.runner->OnMasterLost();
    } else if (worker.actor == nullptr) {
      worker.exit_code = 0;
      worker.ended = true;
    }
    return;
  }
  ++report_.messages;
  Note(absl::StrCat(worker.id, " < ", Describe(delivery.message)));
  if (delivery.trained != nullptr) {
    worker.ledgers[delivery.message.ledger().step()] = delivery.trained;
  }
  worker.welcome = worker.welcome || delivery.message.has_welcome();
  if (worker.runner != nullptr) {
    if (delivery.message.has_welcome()) {
      worker.runner->OnMasterBack();
    } else {
      worker.runner->Receive(std::move(delivery.message));
    }
    return;
  }
  if (delivery.message.has_stop()) {
    worker.exit_code = delivery.message.stop().exit_code();
    worker.ended = true;
    return;
  }
  ELASTICDL_CHECK(delivery.message.has_welcome());
  worker.id = delivery.message.welcome().worker_id();
  next_worker_id_ = std::max(next_worker_id_, worker.id + 1);
  worker.actor = std::make_unique<Actor>(
      [this, &worker, welcome = delivery.message.welcome()] {
        const JobRunner::Deps deps = {
            *worker.model,
            worker.events,
            [this, &worker](v1::WorkerMessage message) {
              // What it exports at the end of training counts, whatever
              // happens to it afterwards.
              if (message.has_task_done()) KeepWeights(worker);
              if (message.has_ready() && message.ready().has_kept_fd()) {
                worker.memory = Fd(dup(message.ready().kept_fd()));
              }
              const bool alive =
                  worker.actor == nullptr || !worker.actor->killed();
              if (alive && worker.stream_open && worker.welcome) {
                worker.to_master.push_back(std::move(message));
              }
            },
            rendezvous::WorldLink::Options(),
            *worker.environment,
            TestExecution()};
        auto runner = JobRunner::Create(welcome, deps);
        if (!runner.ok()) {
          Wrong(absl::StrCat("worker ", worker.id, ": ",
                             runner.status().message()));
          return;
        }
        worker.runner = *std::move(runner);
        worker.exit_code = worker.runner->Run();
      });
}

void Simulation::RunWorker(Worker& worker) {
  worker.actor->Run();
  if (!worker.actor->done() || worker.ended) return;
  worker.ended = true;
  Note(absl::StrCat("worker ", worker.id, " ends with ",
                    worker.exit_code.value_or(-1)));
  KeepWeights(worker);
  worker.runner.reset();
  worker.link_work.clear();
  network_.Lost(worker.id);
}

void Simulation::KeepWeights(Worker& worker) {
  if (worker.runner == nullptr) return;
  worker.last_weights = ValuesOf(worker.runner->replica());
}

void Simulation::KillProcess(Worker& worker, const std::string& reason) {
  if (worker.ended) return;
  Note(absl::StrCat("worker ", worker.id, " is killed: ", reason));
  worker.ended = true;
  worker.end_reason = reason;
  if (worker.actor != nullptr) worker.actor->Kill();
  worker.runner.reset();
  worker.link_work.clear();
  worker.to_worker.clear();
  // What had not left the process is lost with it.
  worker.to_master.resize(random_() % (worker.to_master.size() + 1));
  network_.Lost(worker.id);
  // What was being written is not there, or there without a word, now or later.
  if (!worker.saves.empty() && !worker.saves.front().live() && Happens(60000)) {
    Worker::Save& save = worker.saves.front();
    late_saves_.push_back(
        {{std::move(save.snapshot), std::move(save.trained)}, WhenSaved()});
  }
  worker.saves.clear();
}

void Simulation::TellPodEnd(Worker& worker) {
  worker.pod_end_told = true;
  const bool crashed = worker.exit_code.value_or(0) != 0;
  controller_->OnWorkerEnded(
      now_, worker.id,
      {crashed, worker.end_reason.empty()
                    ? absl::StrCat("exit code ", worker.exit_code.value_or(0))
                    : worker.end_reason});
}

void Simulation::RestartMaster() {
  ++report_.master_deaths;
  records_to_death_ = 0;
  Note("the master dies");
  controller_.reset();
  queries_.clear();
  answers_.clear();
  for (const auto& worker : workers_) {
    worker->to_master.clear();
    worker->to_worker.clear();
    worker->stream_open = false;
    if (worker->ended) {
      // Its pod's end is told to the next master, if it was not to this one.
      continue;
    }
    if (worker->runner == nullptr && worker->actor == nullptr) {
      KillProcess(*worker, "no master");
    }
  }
  StartMaster();
  for (const auto& worker : workers_) {
    if (!worker->ended) ConnectWorker(*worker, /*resuming=*/true);
  }
}

void Simulation::BreakStream(Worker& worker) {
  Note(absl::StrCat("the stream of worker ", worker.id, " breaks"));
  controller_->OnClosed(now_, worker.connection,
                        absl::UnavailableError("stream broken"));
  // It takes the master for dead and tries to come back.
  ConnectWorker(worker, /*resuming=*/true);
}

// Nobody hears from it any more. It holds its memory, and its peers may wait
// for it.
void Simulation::Hang(Worker& worker) {
  Note(absl::StrCat("worker ", worker.id, " hangs"));
  worker.hangs = true;
  if (!std::exchange(worker.stream_open, false)) return;
  controller_->OnClosed(now_, worker.connection,
                        absl::UnavailableError("keepalive timeout"));
}

void Simulation::PassTime() {
  const absl::Time next = controller_->NextTimer();
  if (next < absl::InfiniteFuture()) now_ = std::max(now_, next);
  controller_->OnTimer(now_);
}

std::vector<std::function<void()>> Simulation::PossibleActions() {
  std::vector<std::function<void()>> actions;
  for (const auto& owned : workers_) {
    Worker* worker = owned.get();
    // The stream ends after all that was sent over it.
    if (worker->stream_open && (!worker->to_master.empty() || worker->ended)) {
      actions.emplace_back([=] { DeliverToMaster(*worker); });
    }
    if (worker->ended) {
      // Mostly long after its stream has broken.
      if (!worker->pod_end_told && Happens(5000)) {
        actions.emplace_back([=] { TellPodEnd(*worker); });
      }
      continue;
    }
    if (worker->hangs) continue;
    // A worker hears nothing while it loads its model.
    const bool loading = worker->actor != nullptr && worker->runner == nullptr;
    if (!worker->to_worker.empty() && !loading) {
      actions.emplace_back([=] { DeliverToWorker(*worker); });
    }
    if (!worker->link_work.empty()) {
      actions.emplace_back([=] {
        const auto work = std::move(worker->link_work.front());
        worker->link_work.pop_front();
        work();
      });
    }
    if (worker->actor != nullptr && worker->actor->ready()) {
      actions.emplace_back([=] { RunWorker(*worker); });
    }
    if (!worker->saves.empty() && worker->saves.front().live()) {
      if (CanGoOnWithSave(*worker)) {
        actions.emplace_back([=] { GoOnWithSave(*worker); });
      }
    } else if (!worker->saves.empty() &&
               worker->saves.front().ready_at <= report_.actions) {
      actions.emplace_back([=] { FinishSave(*worker); });
    }
  }
  if (static_cast<int>(Living()) < target_ && !controller_->ending()) {
    actions.emplace_back([this] { StartWorker(); });
  }
  if (!late_saves_.empty() && late_saves_.back().ready_at <= report_.actions) {
    actions.emplace_back([this] { FinishLateSave(); });
  }
  // The disk is read at one moment, and the answer comes at another.
  if (!queries_.empty()) {
    actions.emplace_back([this] {
      answers_.push_back(*master::SearchCheckpoint(store_, queries_.front()));
      queries_.pop_front();
    });
  }
  if (!answers_.empty()) {
    actions.emplace_back([this] {
      const master::CheckpointAnswer answer = std::move(answers_.front());
      answers_.pop_front();
      controller_->OnCheckpointFound(now_, answer);
    });
  }
  if (controller_->NextTimer() <= now_) {
    actions.emplace_back([this] { controller_->OnTimer(now_); });
  }
  return actions;
}

void Simulation::AddFaults(std::vector<std::function<void()>>& actions) {
  if (faults_left_ <= 0 || controller_->ending()) return;
  std::vector<Worker*> living;
  for (const auto& worker : workers_) {
    if (!worker->ended) living.push_back(worker.get());
  }
  const auto one = [&] { return living[random_() % living.size()]; };
  const auto only = [&](std::function<void()> fault) {
    --faults_left_;
    actions = {std::move(fault)};
  };
  if (!living.empty() && Happens(options_.kills)) {
    only([this, worker = one()] {
      ++report_.kills;
      KillProcess(*worker, "signal 9 (SIGKILL)");
    });
  } else if (!living.empty() && Happens(options_.leaves)) {
    Worker* worker = one();
    if (worker->runner == nullptr || worker->leaving) return;
    only([this, worker] {
      ++report_.leaves;
      Note(absl::StrCat("worker ", worker->id, " is to leave"));
      worker->leaving = true;
      worker->events.PushKind(Event::Kind::kLeave);
    });
  } else if (Happens(options_.joins)) {
    only([this] {
      ++report_.joins;
      target_ = 1 + static_cast<int>(random_() % 4);
      if (static_cast<int>(Living()) < target_) StartWorker();
    });
  } else if (Happens(options_.master_deaths)) {
    if (Happens(50000)) {
      records_to_death_ = 1 + static_cast<int>(random_() % 8);
      --faults_left_;
    } else {
      only([this] { RestartMaster(); });
    }
  } else if (!living.empty() && Happens(options_.flaps)) {
    Worker* worker = one();
    if (worker->runner == nullptr || !worker->stream_open) return;
    only([this, worker] { BreakStream(*worker); });
  } else if (!living.empty() && Happens(options_.hangs)) {
    Worker* worker = one();
    if (worker->hangs || worker->runner == nullptr) return;
    only([this, worker] {
      ++report_.hangs;
      Hang(*worker);
    });
  } else if (Happens(options_.slow_times)) {
    only([this] { PassTime(); });
  }
}

// Nothing can happen before some time has passed.
void Simulation::WaitForSomething() {
  // A save may take longer than the master's timers, or not.
  if (Happens(50000) && HurrySaves()) return;
  if (controller_->NextTimer() < absl::InfiniteFuture()) return PassTime();
  if (HurrySaves()) return;
  const auto untold =
      std::find_if(workers_.begin(), workers_.end(), [](const auto& worker) {
        return worker->ended && !worker->pod_end_told;
      });
  if (untold == workers_.end()) return Wrong("nothing is left to happen");
  TellPodEnd(**untold);
}

absl::Status Simulation::Run() {
  StartMaster();
  while (wrong_.empty()) {
    if (++report_.actions > options_.most_actions) {
      Wrong("the job hangs");
      break;
    }
    now_ += absl::Microseconds(200);
    std::vector<std::function<void()>> actions = PossibleActions();
    if (controller_->result().has_value()) break;
    AddFaults(actions);
    std::function<void()> next = [this] { WaitForSomething(); };
    if (!actions.empty()) next = actions[random_() % actions.size()];
    try {
      next();
    } catch (const Killed&) {
      RestartMaster();
    }
  }
  report_.shrunk = network_.num_shrunk;
  absl::Status status = wrong_.empty() ? CheckEnd() : absl::OkStatus();
  if (status.ok() && !wrong_.empty()) status = absl::InternalError(wrong_);
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat(
        status.message(), "\nafter ", report_.actions, " actions of ",
        options_.ToString(), "\n  ", absl::StrJoin(notes_, "\n  ")));
  }
  return status;
}

}  // namespace elasticdl::worker::test
