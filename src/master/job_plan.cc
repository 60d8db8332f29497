#include "job_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/reader.h"
#include "ps_logs.h"

namespace elasticdl::master {
namespace {

using Shards = std::vector<v1::LedgerShard>;

absl::StatusOr<Shards> ListShards(const std::string& flag,
                                  const std::string& origin,
                                  const std::string& params) {
  Shards shards;
  if (origin.empty()) return shards;
  ELASTICDL_ASSIGN_OR_RETURN(const data::ReaderParams parsed,
                             data::ParseReaderParams(params));
  auto reader = data::OpenDataReader(origin, parsed);
  if (!reader.ok()) return Annotate(reader.status(), flag);
  auto made = (*reader)->CreateShards();
  if (!made.ok()) return Annotate(made.status(), flag);
  for (const data::Shard& shard : *made) {
    v1::LedgerShard& added = shards.emplace_back();
    added.set_name(shard.name);
    added.set_begin(shard.begin);
    added.set_end(shard.end);
  }
  return shards;
}

absl::Status AddShards(const v1::JobSpec& job, TaskManagerOptions& tasks) {
  ELASTICDL_ASSIGN_OR_RETURN(tasks.training_shards,
                             ListShards("--training_data", job.training_data(),
                                        job.data_reader_params()));
  ELASTICDL_ASSIGN_OR_RETURN(
      tasks.validation_shards,
      ListShards("--validation_data", job.validation_data(),
                 job.data_reader_params()));
  ELASTICDL_ASSIGN_OR_RETURN(
      tasks.prediction_shards,
      ListShards("--prediction_data", job.prediction_data(),
                 job.data_reader_params()));
  return absl::OkStatus();
}

absl::Status AddCheckpoint(const std::string& dir, bool training,
                           JobController::Options& plan) {
  if (dir.empty()) return absl::OkStatus();
  // The member of a world that restores it says so if it is damaged, and the
  // job begins with an older one (DoubtCheckpoint). Others cannot: workers
  // that evaluate or predict load it one by one, before they are ready, and
  // servers may have got half of it. For them all of it is verified first.
  const bool worlds = training && plan.job.num_ps_pods() == 0;
  const auto find = [&]() -> absl::StatusOr<checkpoint::Head> {
    if (worlds) return checkpoint::FindHead(dir);
    ELASTICDL_ASSIGN_OR_RETURN(const std::string path,
                               checkpoint::Resolve(dir));
    return checkpoint::ReadHead(path);
  };
  auto head = find();
  if (!head.ok()) return Annotate(head.status(), "--checkpoint_dir_for_init");
  plan.restore_from = head->path;
  plan.restore_step = head->version;
  if (training) plan.restore_ledger = std::move(head->ledger);
  return absl::OkStatus();
}

void AddCheckpoints(const std::string& dir, JobController::Options& plan) {
  plan.run = NewRun();
  plan.fence = [dir](const checkpoint::Lineage& lineage) {
    if (dir.empty()) return;
    const absl::Status fenced = checkpoint::Fence(dir, lineage);
    // What they save is not used in any case.
    if (!fenced.ok()) LogWarning("fencing old writers: ", fenced.message());
  };
}

}  // namespace

CheckpointStore CheckpointStoreIn(const std::string& dir,
                                  const std::string& start) {
  CheckpointStore store;
  store.list = [dir]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    if (dir.empty()) return std::vector<checkpoint::Version>();
    if (!FileExists(dir)) {
      return absl::NotFoundError(absl::StrCat(dir, " does not exist"));
    }
    ELASTICDL_ASSIGN_OR_RETURN(checkpoint::Listing listing,
                               checkpoint::ListVersions(dir));
    return std::move(listing.versions);
  };
  store.load_ledger =
      [](const std::string& path) -> absl::StatusOr<v1::Ledger> {
    ELASTICDL_ASSIGN_OR_RETURN(checkpoint::Head head,
                               checkpoint::ReadHead(path));
    if (head.ledger.has_value()) return *std::move(head.ledger);
    return absl::NotFoundError(absl::StrCat(path, " has no ledger"));
  };
  store.verify = [](const std::string& path,
                    const checkpoint::LoadProgress& progress) -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(const bool checked,
                               checkpoint::HasChecksums(path));
    if (checked) return checkpoint::Verify(path, progress);
    return absl::DataLossError(
        absl::StrCat(path, " has no checksums that say that it is whole"));
  };
  if (!start.empty()) {
    store.older_start = [start](int64_t below) {
      return checkpoint::FindHead(start, below);
    };
  }
  return store;
}

std::string CheckpointsInTheWay(const v1::JobSpec& job, int64_t first_step) {
  const std::string& dir = job.checkpoint_dir();
  const auto found = CheckpointStoreIn(dir).list();
  // What cannot be read is told when the first one is saved.
  if (!found.ok() || found->empty()) return "";
  // Ascending.
  const int64_t newest = found->back().version;
  if (newest <= first_step) return "";
  return absl::StrCat(
      "warning: --checkpoint_dir=", dir, " has version-", newest,
      " of an earlier job, and this job begins at step ", first_step,
      ": until it has passed step ", newest,
      ", the newest checkpoint in this folder is not its own. To continue the "
      "earlier job, add --checkpoint_dir_for_init=",
      dir, "; otherwise use another folder");
}

absl::StatusOr<JobController::Options> PlanJob(const MasterOptions& options) {
  const v1::JobSpec& job = options.job;
  const bool training = job.job_type() == v1::TRAINING_ONLY ||
                        job.job_type() == v1::TRAINING_WITH_EVALUATION;
  JobController::Options plan;
  plan.job = job;
  plan.has_pods = options.start_pods;
  // A kubelet tells of a pod's end only after it has cleaned up.
  if (options.cluster.has_value()) plan.end_grace = absl::Seconds(15);
  plan.membership.min_workers = std::max<int64_t>(1, options.min_workers);
  plan.membership.max_workers =
      job.distribution_strategy() == "Local" ? 1 : options.max_workers;
  plan.membership.save_last = !job.checkpoint_dir().empty();
  if (job.load_timeout_seconds() > 0) {
    plan.membership.load_timeout = absl::Seconds(job.load_timeout_seconds());
  }
  // A member that is told of a new world ends its step first.
  plan.membership.enter_timeout =
      std::max(plan.membership.enter_timeout,
               2 * absl::Seconds(job.step_timeout_seconds()));
  TaskManagerOptions& tasks = plan.tasks;
  tasks.minibatch_size = job.minibatch_size();
  tasks.num_minibatches_per_task = options.num_minibatches_per_task;
  tasks.num_epochs = options.num_epochs;
  tasks.shuffle = options.shuffle;
  tasks.seed = options.seed;
  tasks.max_step = job.max_step();
  tasks.minibatches_are_steps = job.num_ps_pods() > 0 && job.use_async();
  tasks.task_max_failures = options.task_max_failures;
  tasks.task_timeout = options.task_timeout;
  tasks.final_evaluation = options.final_evaluation;
  tasks.train_end_task = training;
  const absl::Status data = AddShards(job, tasks);
  if (!data.ok()) {
    if (!options.model_may_read_data) return data;
    plan.data_error = data;
  }
  plan.evaluation.evaluation_steps = job.evaluation_steps();
  plan.evaluation.start_delay = options.evaluation_start_delay;
  plan.evaluation.throttle = options.evaluation_throttle;
  ELASTICDL_RETURN_IF_ERROR(
      AddCheckpoint(options.checkpoint_dir_for_init, training, plan));
  AddCheckpoints(job.checkpoint_dir(), plan);
  return plan;
}

}  // namespace elasticdl::master
