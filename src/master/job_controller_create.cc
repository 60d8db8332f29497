// How a JobController begins: from the flags, a checkpoint or a journal, and
// from what the first worker says of the data.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "job_controller.h"

namespace elasticdl::master {
namespace {

// Told what the user might not expect.
using Note = std::function<void(const std::string&)>;

// --num_epochs counts from the beginning of the training; some take it for the
// number of epochs to add.
void NoteLeftovers(const v1::Ledger& ledger, int64_t num_epochs,
                   const Note& note) {
  if (num_epochs <= 0 || ledger.epoch() < num_epochs) return;
  int64_t left = 0;
  for (const v1::LedgerRange& range : ledger.outstanding()) {
    left += range.end() - range.begin();
  }
  note(absl::StrCat("the checkpoint is in epoch ", ledger.epoch() + 1,
                    "; --num_epochs=", num_epochs, " leaves ",
                    Count(left, "record"),
                    " to train; a higher --num_epochs continues"));
}

absl::StatusOr<TaskManager> CreateTasks(const JobController::Options& options,
                                        const Note& note) {
  TaskManagerOptions task_options = options.tasks;
  // What there is to evaluate will be known with the first worker.
  if (!options.data_error.ok()) task_options.final_evaluation = false;
  ELASTICDL_ASSIGN_OR_RETURN(TaskManager tasks,
                             TaskManager::Create(task_options));
  if (options.restore_ledger.has_value()) {
    const absl::Status restored = tasks.Restore(*options.restore_ledger);
    if (restored.ok() && !tasks.TrainingDone()) {
      NoteLeftovers(*options.restore_ledger, task_options.num_epochs, note);
      return tasks;
    }
    // Weights of another data set, or of a training that is over, are a fine
    // start; their place in the data is not.
    note(restored.ok()
             ? absl::StrCat("the training of the checkpoint is complete: ",
                            "starting with its model, all epochs are trained "
                            "again; a higher --num_epochs would continue it")
             : absl::StrCat("starting with the model of the checkpoint, and "
                            "the data from its beginning: ",
                            restored.message()));
    ELASTICDL_ASSIGN_OR_RETURN(tasks, TaskManager::Create(task_options));
  }
  if (!options.restore_from.empty()) {
    ELASTICDL_RETURN_IF_ERROR(tasks.SetStep(options.restore_step));
  }
  return tasks;
}

void ReadStart(const v1::JournalRecord::Start& start,
               JobController::Options& options) {
  options.restore_from = start.restore_from();
  options.restore_step = start.restore_step();
  options.restore_ledger.reset();
  if (start.has_restore_ledger()) {
    options.restore_ledger = start.restore_ledger();
  }
}

ServerTraining::Options ServerOptions(const JobController::Options& options) {
  const v1::JobSpec& job = options.job;
  ServerTraining::Options result;
  result.use_async = job.use_async();
  result.versions = {job.grads_to_wait(), job.sync_version_tolerance(),
                     job.num_ps_pods(), options.restore_step};
  result.saves = {job.checkpoint_steps(), !job.checkpoint_dir().empty()};
  result.minibatch_size = options.tasks.minibatch_size;
  result.restore_from = options.restore_from;
  result.restore_step = options.restore_step;
  result.memory = options.server_memory;
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobController>> JobController::Create(
    Options options, WorkerPort& port, JobObserver& observer, absl::Time now) {
  if (!options.replay.empty()) {
    const v1::JournalRecord& first = options.replay.front();
    if (!first.has_start() ||
        first.start().job_name() != options.job.job_name()) {
      return absl::DataLossError(
          absl::StrCat("the journal is not of job ", options.job.job_name()));
    }
    // Not what the flags say now: there may be newer checkpoints.
    options.run = first.start().run();
    ReadStart(first.start(), options);
  }
  options.job.set_run(options.run);
  // A restarted master has told it before.
  const auto note = [&, resumed =
                            !options.replay.empty()](const std::string& text) {
    if (!resumed) observer.OnMessage(text);
  };
  ELASTICDL_ASSIGN_OR_RETURN(TaskManager tasks, CreateTasks(options, note));
  return std::unique_ptr<JobController>(new JobController(
      std::move(options), std::move(tasks), port, observer, now));
}

JobController::JobController(Options options, TaskManager tasks,
                             WorkerPort& port, JobObserver& observer,
                             absl::Time now)
    : options_(std::move(options)),
      port_(port),
      observer_(observer),
      tasks_(std::move(tasks)),
      evaluation_(options_.evaluation, tasks_, now),
      world_(options_.membership, options_.job.collective(), registry_, port_),
      blame_(options_.tasks.task_max_failures),
      heirs_(options_.tasks.task_max_failures),
      granter_({options_.window, options_.job.global_batch_size(),
                options_.job.accumulation_steps() > 1
                    ? options_.job.minibatch_size() *
                          options_.job.accumulation_steps()
                    : 0},
               tasks_, registry_, blame_, port_),
      rounds_(evaluation_, tasks_, registry_, port_),
      checkpoints_(options_.run,
                   options_.restore_from.empty() ? -1 : options_.restore_step),
      first_ledger_(tasks_.Snapshot()) {
  if (!IsTraining() || options_.job.num_ps_pods() <= 0) return;
  ServerTraining::Host& host = *this;
  servers_ = std::make_unique<ServerTraining>(
      ServerOptions(options_),
      ServerTraining::Job{tasks_, registry_, checkpoints_, port_, observer_},
      host, now);
  // Of worlds, each tells it. Servers never lose their model.
  checkpoints_.SetLineage(1);
}

absl::Status JobController::SetStart(const v1::JournalRecord::Start& start,
                                     bool tell) {
  if (start.restore_from() == options_.restore_from) return absl::OkStatus();
  ReadStart(start, options_);
  ELASTICDL_ASSIGN_OR_RETURN(
      const TaskManager tasks,
      CreateTasks(options_, [this, tell](const std::string& text) {
        if (tell) observer_.OnMessage(text);
      }));
  first_ledger_ = tasks.Snapshot();
  checkpoints_.SetStart(options_.restore_step);
  return absl::OkStatus();
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
  ELASTICDL_ASSIGN_OR_RETURN(
      tasks_, CreateTasks(options_, [this](const std::string& text) {
        observer_.OnMessage(text);
      }));
  WatchTasks();
  first_ledger_ = tasks_.Snapshot();
  shards_ = ready;
  v1::JournalRecord record;
  *record.mutable_shards() = ready;
  Record(record);
  return absl::OkStatus();
}

}  // namespace elasticdl::master
