// The controller's part in training with parameter servers. There are no
// worlds: each worker trains its own tasks, and what it has pushed to every
// server is committed. A worker that dies between a push and its report costs
// nothing: its successor's push has the same name, and servers that have it
// ignore it (docs/design/0006-parameter-servers.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "job_controller.h"

namespace elasticdl::master {
namespace {

// The version of ps::BucketMap::Even, which all workers begin with.
constexpr int64_t kFirstMap = 1;

}  // namespace

int64_t JobController::CountMinibatches(
    const std::vector<CommittedRange>& ranges) const {
  // Tasks begin and end at multiples of the minibatch size, or at the end of a
  // block.
  const int64_t size = options_.tasks.minibatch_size;
  int64_t minibatches = 0;
  for (const CommittedRange& range : ranges) {
    minibatches += (range.end - range.begin + size - 1) / size;
  }
  return minibatches;
}

// ---- asynchronous ----

void JobController::OnPushed(absl::Time now, const Worker& worker,
                             const v1::Progress& progress) {
  if (progress.totals_size() != 1 ||
      progress.totals(0).worker_id() != worker.id) {
    LogWarning("report of worker ", worker.id, " refused: not its own");
    return;
  }
  int64_t& known = committed_totals_[worker.id];
  const int64_t records = progress.totals(0).records() - known;
  if (records == 0) return;
  commit_step_ = tasks_.step();
  commit_generation_ = 0;
  const auto ranges = tasks_.CommitNext(now, worker.id, records);
  if (!ranges.ok()) {
    return Fail(
        now, absl::StrCat("the ledger is wrong: ", ranges.status().message()));
  }
  const bool first = tasks_.step() == first_ledger_.step();
  known += records;
  int64_t step = tasks_.step() + CountMinibatches(*ranges);
  if (options_.tasks.max_step > 0) {
    step = std::min(step, options_.tasks.max_step);
  }
  for (const CommittedRange& range : *ranges) {
    saves_.OnCommit(range);
    observer_.OnCommit(range, step, /*generation=*/0);
  }
  blame_.OnCommit();
  granter_.OnCommit(now, records);
  const absl::Status status = tasks_.SetStep(step);
  if (!status.ok()) LogWarning(status.message());
  if (first) observer_.OnFirstStep(/*generation=*/0, step);
  v1::Progress counted = progress;
  counted.set_step(step);
  observer_.OnProgress(counted, records);
}

// ---- synchronous ----

void JobController::OnStaged(absl::Time now, ConnectionId connection,
                             const Worker& worker, const v1::Staged& staged) {
  const v1::LedgerRange& range = staged.range();
  const auto next = tasks_.NextUncommitted(worker.id);
  VersionRounds::Gradient gradient;
  gradient.worker_id = worker.id;
  gradient.range = range;
  gradient.base_version = staged.base_version();
  gradient.learning_rate = staged.learning_rate();
  gradient.loss = staged.loss();
  // Said again to a new master: the one before had committed it and could not
  // answer.
  if (!next.has_value() || next->shard() != range.shard() ||
      next->epoch() != range.epoch() || next->begin() != range.begin()) {
    if (versions_.open()) {
      in_open_version_.push_back(gradient);
    } else {
      SendPushResult(worker.id, range, versions_.version());
    }
    return;
  }
  if (!versions_.Add(gradient)) {
    stale_.push_back(std::move(gradient));
    SendStale();
  }
}

void JobController::SendStale() {
  // Before that, some server would give out the old version once more.
  if (versions_.open()) return;
  for (const VersionRounds::Gradient& stale : std::exchange(stale_, {})) {
    SendPushResult(stale.worker_id, stale.range, 0);
  }
}

void JobController::DropFromServers(int64_t worker_id) {
  versions_.Drop(worker_id);
  if (!options_.job.use_async()) return;
  // Its last push may have reached some of the servers only.
  if (const auto next = tasks_.NextUncommitted(worker_id)) {
    saves_.AddSuspect(*next);
    CancelServerSave();
  }
}

void JobController::AdvanceServers(absl::Time now) {
  AdvanceServerSave();
  AdvanceVersions(now);
}

void JobController::AdvanceVersions(absl::Time now) {
  if (tasks_.TrainingDone() || saves_.holds_training()) return;
  // Who holds data and has no gradient here is computing one.
  bool more = false;
  for (const auto& [connection, worker] : registry_.workers()) {
    more |= worker.ready && !worker.leaving && !worker.stop_sent &&
            !versions_.Waits(worker.id) &&
            tasks_.NumHeld(worker.id, v1::TRAINING) > 0;
  }
  const auto gradients = versions_.Next(more);
  if (gradients.empty()) return;
  v1::PsCommit& commit = versions_.mutable_commit();
  commit.set_learning_rate(gradients[0].learning_rate);
  commit.set_map_version(kFirstMap);
  commit.set_oldest_epoch(tasks_.OldestEpoch());
  // From here on it is decided: all servers have the gradients, and what is
  // recorded is sent to them until they have applied it.
  v1::JournalRecord record;
  *record.mutable_version() = commit;
  Record(record);
  CommitVersion(now, gradients);
  in_open_version_ = gradients;
  for (int server = 0; server < options_.job.num_ps_pods(); ++server) {
    SendCommit(server);
  }
  for (VersionRounds::Gradient& stale : versions_.TakeStale()) {
    stale_.push_back(std::move(stale));
  }
}

void JobController::CommitVersion(
    absl::Time now, const std::vector<VersionRounds::Gradient>& gradients) {
  const int64_t version = versions_.version();
  const bool first = tasks_.step() == first_ledger_.step();
  commit_step_ = version;
  commit_generation_ = 0;
  v1::Progress progress;
  progress.set_step(version);
  progress.set_learning_rate(gradients[0].learning_rate);
  int64_t records = 0;
  double loss = 0;
  for (const VersionRounds::Gradient& gradient : gradients) {
    const int64_t size = gradient.range.end() - gradient.range.begin();
    const auto ranges = tasks_.CommitNext(now, gradient.worker_id, size);
    if (!ranges.ok()) {
      return Fail(now, absl::StrCat("the ledger of version ", version,
                                    " is wrong: ", ranges.status().message()));
    }
    records += size;
    loss += gradient.loss * static_cast<double>(size);
    for (const CommittedRange& range : *ranges) {
      observer_.OnCommit(range, version, /*generation=*/0);
    }
  }
  blame_.OnCommit();
  granter_.OnCommit(now, records);
  const absl::Status status = tasks_.SetStep(version);
  if (!status.ok()) LogWarning(status.message());
  if (first) observer_.OnFirstStep(/*generation=*/0, version);
  progress.set_loss(loss / static_cast<double>(records));
  observer_.OnProgress(progress, records);
}

void JobController::SendCommit(int server) {
  v1::MasterMessage message;
  *message.mutable_commit() = versions_.commit();
  port_.SendToServer(server, std::move(message));
}

void JobController::SendPushResult(int64_t worker_id,
                                   const v1::LedgerRange& range,
                                   int64_t version) {
  if (!registry_.IsReachable(worker_id)) return;
  v1::MasterMessage message;
  *message.mutable_push_result()->mutable_range() = range;
  message.mutable_push_result()->set_version(version);
  port_.Send({registry_.ConnectionOf(worker_id)}, std::move(message));
}

void JobController::OnServerAttached(absl::Time now, int server,
                                     int64_t version) {
  // A server that has not applied the first version yet has what it needs in
  // its log, and says so when it does not.
  const bool trained = tasks_.step() > first_ledger_.step();
  const bool first = versions_.open() && versions_.version() == 1;
  if (version == 0 && trained && !first) {
    return Fail(
        now,
        absl::StrCat(
            "parameter server ", server,
            " came back without its part of the model: its log is lost, with "
            "its pod or by somebody's hand. Start again from the newest "
            "checkpoint (--checkpoint_dir_for_init); --ps_log=DIR, on a "
            "--volume if on a cluster, keeps logs when pods are lost"));
  }
  if (versions_.open()) SendCommit(server);
}

void JobController::OnServerMessage(absl::Time now, int server,
                                    const v1::WorkerMessage& message) {
  if (!message.has_server_committed()) return;
  const v1::ServerCommitted& committed = message.server_committed();
  if (!committed.error().empty()) {
    return Fail(
        now, absl::StrCat("parameter server ", server, " cannot apply version ",
                          committed.version(), ": ", committed.error()));
  }
  if (!versions_.Applied(server, committed.version())) return;
  for (const VersionRounds::Gradient& gradient :
       std::exchange(in_open_version_, {})) {
    SendPushResult(gradient.worker_id, gradient.range, versions_.version());
  }
  SendStale();
  Advance(now);
}

// ---- checkpoints ----

void JobController::AdvanceServerSave() {
  using State = ServerCheckpoints::State;
  if (saves_.state() == State::kSaving &&
      !registry_.IsReachable(saves_.saver())) {
    CancelServerSave();
  }
  if (saves_.state() == State::kIdle) {
    const bool over = tasks_.TrainingDone() && WorkersAtRest();
    if (versions_.open() || !saves_.Due(tasks_.step(), over)) return;
    // The model of a synchronous job changes only when this master says so.
    if (over || !options_.job.use_async()) return BeginServerSave();
    saves_.BeginPause();
    v1::MasterMessage message;
    message.mutable_pause()->set_number(saves_.pause());
    port_.Send(registry_.ReadyConnections(), std::move(message));
  }
  if (saves_.state() != State::kPausing) return;
  for (const auto& [connection, worker] : registry_.workers()) {
    // Who has no data cannot push.
    if (worker.ready && !worker.stop_sent && worker.paused != saves_.pause() &&
        tasks_.NumHeld(worker.id, v1::TRAINING) > 0) {
      return;
    }
  }
  BeginServerSave();
}

void JobController::BeginServerSave() {
  for (const auto& [connection, worker] : registry_.workers()) {
    if (!worker.ready || worker.leaving || worker.stop_sent) continue;
    saves_.BeginSave(worker.id);
    v1::MasterMessage message;
    message.mutable_save_now()->set_step(tasks_.step());
    message.mutable_save_now()->set_lineage(checkpoints_.lineage());
    return port_.Send({connection}, std::move(message));
  }
  // Until somebody comes who can.
  CancelServerSave();
}

void JobController::EndServerSave(int64_t step) {
  if (saves_.state() != ServerCheckpoints::State::kSaving) return;
  saves_.End(step);
  SendResume();
}

void JobController::CancelServerSave() {
  if (!saves_.holds_training()) return;
  saves_.Cancel();
  SendResume();
}

void JobController::SendResume() {
  v1::MasterMessage message;
  message.mutable_resume();
  port_.Send(registry_.ReadyConnections(), std::move(message));
}

// ---- the end ----

void JobController::SendTrainingDone() {
  for (auto& [connection, worker] : registry_.workers()) {
    if (!worker.ready || std::exchange(worker.training_done_sent, true)) {
      continue;
    }
    v1::MasterMessage message;
    message.mutable_training_done();
    port_.Send({connection}, std::move(message));
  }
}

// Training that was stopped early leaves workers with tasks: they may be in the
// middle of a minibatch.
bool JobController::WorkersAtRest() const {
  if (versions_.open()) return false;
  const auto& workers = registry_.workers();
  return std::all_of(workers.begin(), workers.end(), [this](const auto& entry) {
    return !entry.second.ready || entry.second.idle ||
           tasks_.NumHeld(entry.second.id, v1::TRAINING) == 0;
  });
}

}  // namespace elasticdl::master
