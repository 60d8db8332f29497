// What a simulation hears from the master, and what must be true.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ledger.h"
#include "simulation.h"
#include "simulation_worker.h"

namespace elasticdl::worker::test {
namespace {

constexpr size_t kNotesKept = 400;

}  // namespace

absl::StatusOr<checkpoint::Loaded> Simulation::SimEnvironment::LoadCheckpoint(
    const std::string& path, const checkpoint::LoadOptions&) {
  const auto found = simulation_.disk_.find(VersionOf(path));
  if (found == simulation_.disk_.end()) {
    return absl::NotFoundError(absl::StrCat("no ", path));
  }
  Saved& on_disk = found->second;
  if (simulation_.options_.damaged_loads > 0 &&
      simulation_.Happens(100 * simulation_.options_.damaged_loads)) {
    on_disk.damaged = true;
  }
  if (on_disk.damaged) {
    ++simulation_.report_.damaged_loads;
    simulation_.Note(absl::StrCat(path, " is damaged"));
    return absl::DataLossError(absl::StrCat("read ", path, ": checksum"));
  }
  const checkpoint::Snapshot& saved = on_disk.snapshot.snapshot;
  simulation_.CheckModel(absl::StrCat("restoring ", path),
                         Weights(saved.variables.at(0)), simulation_.Audit());
  checkpoint::Loaded loaded;
  loaded.path = path;
  loaded.version = saved.version;
  loaded.variables = saved.variables;
  loaded.slots = saved.slots;
  loaded.optimizer = saved.optimizer;
  loaded.optimizer_step = saved.optimizer_step;
  loaded.ledger = saved.ledger;
  return loaded;
}

// ---- WorkerPort, JobObserver ----

void Simulation::Send(const std::vector<ConnectionId>& connections,
                      v1::MasterMessage message) {
  Delivery delivery;
  if (message.has_ledger()) {
    delivery.trained = std::make_shared<const TrainedSet>(Audit());
  }
  if (!message.prepare().kept().empty()) ++report_.kept;
  delivery.message = std::move(message);
  for (const ConnectionId connection : connections) {
    for (const auto& worker : workers_) {
      if (worker->connection == connection && !worker->ended) {
        worker->to_worker.push_back(delivery);
      }
    }
  }
}

void Simulation::Close(ConnectionId connection, const absl::Status& status) {
  for (const auto& worker : workers_) {
    if (worker->connection != connection) continue;
    worker->to_master.clear();
    if (worker->ended) {
      worker->stream_open = false;
      continue;
    }
    Delivery delivery;
    delivery.end = status;
    worker->to_worker.push_back(std::move(delivery));
  }
}

void Simulation::KillWorker(int64_t worker_id, const std::string& reason) {
  for (const auto& worker : workers_) {
    if (worker->id == worker_id) KillProcess(*worker, reason);
  }
}

void Simulation::OnCommit(const master::CommittedRange& range, int64_t step,
                          int64_t) {
  // The range is of positions; its block says which records they are.
  const int64_t block = options_.minibatch_size * options_.minibatches_per_task;
  const int64_t begin = range.begin / block * block;
  const size_t shard = static_cast<size_t>(
      std::stoll(range.shard.substr(range.shard.rfind('-') + 1)));
  const int64_t end = std::min(begin + block, options_.data.shards[shard]);
  std::vector<int64_t> ids;
  for (const int64_t record : ledger::RecordsOf(
           ledger::BlockSeed(options_.seed, range.epoch, range.shard, begin),
           begin, end, range.begin, range.end)) {
    ids.push_back(options_.data.Id(range.epoch, range.shard, record));
  }
  Commit commit;
  commit.step = step;
  commit.ids = std::move(ids);
  commits_.push_back(std::move(commit));
}

void Simulation::OnCutBack(int64_t step) {
  ++report_.cut_backs;
  Note(absl::StrCat("cut back to step ", step));
  evaluated_.erase(evaluated_.upper_bound(step), evaluated_.end());
  saves_heard_.erase(saves_heard_.upper_bound(step), saves_heard_.end());
  cut_step_ = step;
  abandoned_lineage_ = fence_.generation;
  Commit cut;
  cut.step = step;
  cut.cut_back = true;
  commits_.push_back(std::move(cut));
}

void Simulation::OnEvaluation(const master::EvaluationResult& result) {
  ++report_.evaluations;
  if (!result.status.ok()) {
    return Wrong(absl::StrCat("evaluation: ", result.status.message()));
  }
  if (result.records != options_.data.validation_records) {
    Wrong(absl::StrCat("evaluation of step ", result.version, " over ",
                       result.records, " records"));
  }
  // The report of that step may be on its way: compared at the end.
  evaluated_[result.version] = result.metrics.at("trained");
}

// ---- checks ----

void Simulation::Wrong(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

void Simulation::Note(const std::string& what) {
  notes_.push_back(what);
  if (notes_.size() > kNotesKept) notes_.pop_front();
}

std::vector<int> Simulation::TimesCommitted(int64_t last_step) const {
  std::vector<int> times(static_cast<size_t>(options_.data.ids()));
  std::vector<const Commit*> valid;
  for (const Commit& commit : commits_) {
    if (commit.cut_back) {
      valid.erase(std::remove_if(valid.begin(), valid.end(),
                                 [&](const Commit* earlier) {
                                   return earlier->step > commit.step;
                                 }),
                  valid.end());
    } else {
      valid.push_back(&commit);
    }
  }
  for (const Commit* commit : valid) {
    if (commit->step > last_step) continue;
    for (const int64_t id : commit->ids) ++times[static_cast<size_t>(id)];
  }
  return times;
}

Simulation::TrainedSet Simulation::Audit() const {
  const std::vector<int> times = TimesCommitted();
  TrainedSet trained;
  for (const int count : times) trained.push_back(count > 0);
  return trained;
}

void Simulation::CheckModel(const std::string& when,
                            absl::Span<const float> weights,
                            const TrainedSet& ledger) {
  const auto trained = TrainedIds(weights);
  if (!trained.ok()) {
    return Wrong(absl::StrCat(when, ": ", trained.status().message()));
  }
  for (size_t id = 0; id < ledger.size(); ++id) {
    if ((*trained)[id] == ledger[id]) continue;
    return Wrong(absl::StrCat(when, ": record ", id, " is ",
                              ledger[id] ? "in the ledger" : "in the model",
                              " only"));
  }
}

absl::Status Simulation::CheckEnd() {
  const master::JobResult result = *controller_->result();
  const bool unsaved =
      result.message.find("was not saved") != std::string::npos;
  if (result.exit_code != 0 && !unsaved) {
    return absl::InternalError(
        absl::StrCat("exit code ", result.exit_code, ": ", result.message));
  }
  const std::vector<int> times = TimesCommitted();
  ELASTICDL_RETURN_IF_ERROR(CheckLedgerAtEnd(times));
  for (const auto& [version, trained] : evaluated_) {
    const std::vector<int> then = TimesCommitted(version);
    const auto count = static_cast<double>(std::count(
        then.begin(), then.begin() + options_.data.validation_records, 1));
    const double expected =
        count / static_cast<double>(options_.data.validation_records);
    if (std::abs(trained - expected) > 1e-4) {
      return absl::InternalError(absl::StrCat("evaluation of step ", version,
                                              " says ", trained,
                                              ", the ledger ", expected));
    }
  }
  const TrainedSet audit = Audit();
  if (options_.checkpoint_steps > 0) {
    return CheckSavedAtEnd(result.exit_code, audit);
  }
  // At least the worker that had the last word has the whole model.
  for (const auto& worker : workers_) {
    const auto trained = TrainedIds(worker->last_weights);
    if (trained.ok() && *trained == audit) return absl::OkStatus();
    if (worker->last_weights.empty()) continue;
    Note(absl::StrCat(
        "worker ", worker->id, " has ",
        trained.ok()
            ? absl::StrCat(std::count(trained->begin(), trained->end(), true),
                           " records")
            : std::string(trained.status().message())));
  }
  return absl::InternalError("nobody has the whole model");
}

absl::Status Simulation::CheckLedgerAtEnd(const std::vector<int>& times) {
  const auto more = std::find_if(times.begin(), times.end(),
                                 [](int count) { return count > 1; });
  if (more != times.end()) {
    return absl::InternalError(absl::StrCat(
        "record ", more - times.begin(), " is in the audit ", *more, " times"));
  }
  const int64_t step = controller_->progress().step;
  if (options_.max_step > 0 && step > options_.max_step) {
    return absl::InternalError(absl::StrCat("the job ended at step ", step));
  }
  const auto missing = std::find(times.begin(), times.end(), 0);
  if (missing == times.end()) return absl::OkStatus();
  ++report_.early_ends;
  // A callback keeps its mind when the model is cut back, so any step may be
  // the last one then.
  const bool told_to_end =
      (options_.max_step > 0 && step == options_.max_step) ||
      (options_.stop_after > 0 && step > 0);
  if (told_to_end) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("record ", missing - times.begin(), " was not trained"));
}

absl::Status Simulation::CheckSavedAtEnd(int exit_code,
                                         const TrainedSet& trained) {
  const int64_t last = controller_->progress().step;
  const bool saved = disk_.count(last) != 0;
  if (saved) {
    CheckModel("the last checkpoint",
               Weights(disk_.at(last).snapshot.snapshot.variables.at(0)),
               trained);
  }
  if (exit_code == 0 && !saved) {
    return absl::InternalError("the last step is not saved");
  }
  // A version whose writer died before it could report is not known to anybody.
  if (exit_code != 0 &&
      (saves_heard_.count(last) != 0 || report_.failed_saves == 0)) {
    return absl::InternalError("the job failed for a checkpoint that is there");
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::worker::test
