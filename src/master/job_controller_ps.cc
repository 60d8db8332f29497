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
  const int64_t step = tasks_.step() + CountMinibatches(*ranges);
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
  // Servers drop what was staged for an older map.
  if (staged.map_version() != moves_.map().version() ||
      !versions_.Add(gradient)) {
    stale_.push_back(std::move(gradient));
    SendStale();
  }
}

void JobController::SendStale() {
  // Before that, some server would give out the old version once more, or know
  // an old map only.
  if (versions_.open() || moves_.open()) return;
  for (const VersionRounds::Gradient& stale : std::exchange(stale_, {})) {
    SendPushResult(stale.worker_id, stale.range, 0);
  }
}

void JobController::DropFromServers(absl::Time now, int64_t worker_id) {
  versions_.Drop(worker_id);
  // Whoever is paused has reported all that it has pushed.
  if (!options_.job.use_async() || saves_.IsPaused(worker_id)) return;
  // Pushes that it had not reported yet are on all servers; the last one may be
  // on some of them only.
  for (const v1::LedgerRange& range : tasks_.Uncommitted(worker_id)) {
    saves_.AddSuspect(range);
    CancelServerSave(now);
  }
}

void JobController::AdvanceServers(absl::Time now) {
  AdvanceServerSave(now);
  AdvanceMoves(now);
  AdvanceVersions(now);
  AdvanceLeavers(now);
}

void JobController::AdvanceVersions(absl::Time now) {
  if (tasks_.TrainingDone() || saves_.holds_training() || moves_.open() ||
      BrokenOff()) {
    return;
  }
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
  commit.set_map_version(moves_.map().version());
  commit.set_oldest_epoch(tasks_.OldestEpoch());
  // From here on it is decided: all servers have the gradients, and what is
  // recorded is sent to them until they have applied it.
  v1::JournalRecord record;
  *record.mutable_version() = commit;
  Record(record);
  CommitVersion(now, gradients);
  in_open_version_ = gradients;
  for (int server = 0; server < moves_.map().servers(); ++server) {
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
  servers_there_.insert(server);
  if (servers_away_.erase(server) > 0) tasks_.RestartClocks(now);
  if (!ServerVersionFits(server, version)) {
    const bool ahead = version >= least_version_[server];
    return Fail(
        now,
        absl::StrCat(
            "parameter server ", server, " came back with version ", version,
            " of its part of the model instead of ",
            ahead ? versions_.version() : least_version_[server],
            ": its log, or the end of it, is lost. Start again from the newest "
            "checkpoint (--checkpoint_dir_for_init); --ps_log=DIR, on a "
            "--volume if on a cluster, keeps logs when pods are lost"));
  }
  if (versions_.open() && server < moves_.map().servers()) SendCommit(server);
  if (moves_.open() && server < moves_.participants()) SendStep(server);
  if (moves_.moving()) Advance(now);
}

bool JobController::ServerVersionFits(int server, int64_t version) const {
  // One that holds no bucket yet cannot have lost any.
  if (tasks_.step() <= first_ledger_.step() || !moves_.Holds(server)) {
    return true;
  }
  if (!options_.job.use_async() && version > versions_.version()) return false;
  const auto least = least_version_.find(server);
  return least == least_version_.end() || version >= least->second;
}

void JobController::RecordPart(const v1::PsPartRecord& record) {
  parts_[record.part()] = record;
  v1::JournalRecord journal;
  *journal.mutable_part() = record;
  Record(journal);
}

void JobController::OnServerDetached(int server) {
  servers_there_.erase(server);
  least_version_[server] = 0;
  if (!moves_.Holds(server)) return;
  servers_away_.insert(server);
  // Whatever is committed by now, it had acknowledged before. Of a version that
  // is open it may have the gradients only.
  least_version_[server] =
      options_.job.use_async()
          ? tasks_.step()
          : versions_.version() - (versions_.open() ? 1 : 0);
}

void JobController::ResumeServers(absl::Time now) {
  for (int server = 0; server < moves_.servers(); ++server) {
    OnServerDetached(server);
  }
  if (options_.job.use_async()) {
    // The journal does not tell who pushed what it had not reported.
    const v1::Ledger ledger = tasks_.Snapshot();
    for (const v1::LedgerRange& range : ledger.outstanding()) {
      saves_.AddSuspect(range);
    }
    return;
  }
  if (!versions_.open()) return;
  // The master before may have recorded the version and not all its commits.
  commit_step_ = versions_.version();
  commit_generation_ = 0;
  for (const v1::PsRanges& push : versions_.commit().pushes()) {
    v1::LedgerRange range;
    range.set_shard(push.shard());
    range.set_epoch(push.epoch());
    range.set_begin(push.bounds(0));
    range.set_end(push.bounds(1));
    const auto committed = tasks_.CommitRange(now, range);
    if (committed.ok() && committed->has_value()) {
      observer_.OnCommit(**committed, commit_step_, /*generation=*/0);
    }
  }
  const absl::Status status = tasks_.SetStep(versions_.version());
  if (!status.ok()) LogWarning(status.message());
}

void JobController::WelcomeToServers(int64_t worker_id, v1::Welcome& welcome) {
  if (options_.restore_from.empty()) return;
  // When something is committed, the servers have a model.
  if (tasks_.step() > first_ledger_.step()) return;
  if (restorer_ >= 0 && registry_.IsReachable(restorer_)) {
    welcome.set_await_model(true);
    return;
  }
  restorer_ = worker_id;
  restorer_overdue_ = 0;
  welcome.set_restore_from(options_.restore_from);
}

bool JobController::TasksStandStill() const {
  // Not while workers are asked to pause: one that hangs would hold up the job
  // for ever.
  const bool saving = saves_.state() == ServerCheckpoints::State::kSaving;
  return HasServers() && (saving || versions_.open() || moves_.open() ||
                          !servers_away_.empty());
}

bool JobController::IsRestoring() const {
  return !options_.restore_from.empty() &&
         tasks_.step() == first_ledger_.step() && restorer_ >= 0 &&
         registry_.IsReachable(restorer_);
}

bool JobController::IsExcused(int64_t worker_id) {
  // A large model takes longer than a task. Nothing is heard of it meanwhile.
  constexpr int kMostOverdue = 12;
  if (IsRestoring()) {
    return worker_id != restorer_ || ++restorer_overdue_ <= kMostOverdue;
  }
  return versions_.Waits(worker_id) ||
         (saves_.holds_training() && saves_.IsPaused(worker_id));
}

void JobController::OnServerMessage(absl::Time now, int server,
                                    const v1::WorkerMessage& message) {
  if (message.has_server_moved()) {
    return OnServerMoved(now, server, message.server_moved());
  }
  if (!message.has_server_committed()) return;
  const v1::ServerCommitted& committed = message.server_committed();
  // Said again to a server that came back or took over: all have it by now.
  const bool stale =
      !versions_.open() || committed.version() != versions_.version();
  if (!committed.error().empty() && !stale) {
    return Fail(
        now, absl::StrCat("parameter server ", server, " cannot apply version ",
                          committed.version(), ": ", committed.error()));
  }
  if (!versions_.Applied(server, committed.version())) return;
  for (const VersionRounds::Gradient& gradient :
       std::exchange(in_open_version_, {})) {
    SendPushResult(gradient.worker_id, gradient.range, versions_.version());
    // The clocks of the others go on: one of them may hang.
    tasks_.RestartClock(now, gradient.worker_id);
  }
  SendStale();
  Advance(now);
}

// ---- checkpoints ----

void JobController::AdvanceServerSave(absl::Time now) {
  using State = ServerCheckpoints::State;
  if (saves_.writer() >= 0 && !registry_.IsAttached(saves_.writer())) {
    saves_.WriterLost();
  }
  if (saves_.state() == State::kSaving &&
      !registry_.IsReachable(saves_.saver())) {
    CancelServerSave(now);
  }
  if (saves_.state() == State::kIdle) {
    const ServerCheckpoints::When when = SaveMoment();
    if (versions_.open() || moves_.open() || !saves_.Due(tasks_.step(), when)) {
      return;
    }
    // The model of a synchronous job changes only when this master says so.
    if (when == ServerCheckpoints::When::kOver || !options_.job.use_async()) {
      return BeginServerSave(now);
    }
    saves_.BeginPause();
    v1::MasterMessage message;
    message.mutable_pause()->set_number(saves_.pause());
    port_.Send(registry_.ReadyConnections(), std::move(message));
  }
  if (saves_.state() != State::kPausing) return;
  for (const auto& [connection, worker] : registry_.workers()) {
    // Who has no data cannot push; who wants to leave does not push any more.
    if (worker.ready && !worker.stop_sent && !worker.leaving &&
        !saves_.IsPaused(worker.id) &&
        tasks_.NumHeld(worker.id, v1::TRAINING) > 0) {
      return;
    }
  }
  BeginServerSave(now);
}

ServerCheckpoints::When JobController::SaveMoment() const {
  using When = ServerCheckpoints::When;
  if (tasks_.TrainingDone() && WorkersAtRest()) return When::kOver;
  return stopping_.has_value() || NobodyStays() ? When::kBreakingOff
                                                : When::kTraining;
}

bool JobController::NobodyStays() const {
  bool goes = false;
  bool starts = false;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (worker.leaving || worker.stop_sent) {
      goes = true;
    } else if (worker.ready) {
      return false;
    } else {
      // It has nothing, and may be told to leave before it has.
      starts = true;
    }
  }
  return goes || !starts;
}

bool JobController::BrokenOff() const {
  return stopping_.has_value() && saves_.Settled(tasks_.step());
}

void JobController::AdvanceLeavers(absl::Time now) {
  const bool wanted =
      NobodyStays() && !saves_.Settled(tasks_.step()) && !saves_.has_suspects();
  std::vector<int64_t> released;
  for (const auto& [connection, worker] : registry_.workers()) {
    const bool needed =
        wanted || worker.id == saves_.saver() || worker.id == saves_.writer();
    if (worker.leaving && !worker.stop_sent && !needed) {
      released.push_back(worker.id);
    }
  }
  for (const int64_t worker_id : released) Release(now, worker_id);
}

bool JobController::AdvanceServerStop(absl::Time now) {
  AdvanceServers(now);
  // Records that may be in the model without being in the ledger are trained
  // first, which makes them known. They are the next to be handed out.
  if (saves_.has_suspects()) granter_.Grant(now, WorldForTasks());
  if (saves_.holds_training() || saves_.writer() >= 0) return true;
  const auto& workers = registry_.workers();
  const bool somebody =
      std::any_of(workers.begin(), workers.end(), [](const auto& entry) {
        return entry.second.ready && !entry.second.stop_sent;
      });
  return somebody && !BrokenOff();
}

void JobController::BeginServerSave(absl::Time now) {
  // As long as the largest model may take. Nothing is heard of it meanwhile.
  constexpr absl::Duration kReadTimeout = absl::Minutes(30);
  // Who stays rather than who wants to leave, and who works rather than who may
  // hang.
  const auto rank = [this](const Worker& worker) {
    return std::pair(!worker.leaving, tasks_.LastReport(worker.id));
  };
  const Worker* saver = nullptr;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (!worker.ready || worker.stop_sent) continue;
    if (saver == nullptr || rank(worker) > rank(*saver)) saver = &worker;
  }
  if (saver == nullptr) {
    // Until somebody comes who can. Nobody is there who would have to hear it.
    saves_.Cancel();
    return;
  }
  saves_.BeginSave(saver->id);
  read_deadline_ = now + kReadTimeout;
  v1::MasterMessage message;
  v1::SaveNow& save = *message.mutable_save_now();
  save.set_step(tasks_.step());
  save.set_lineage(checkpoints_.lineage());
  save.set_versions_may_differ(saves_.versions_may_differ());
  port_.Send({registry_.ConnectionOf(saver->id)}, std::move(message));
}

void JobController::OnServerModelRead(absl::Time now, ConnectionId connection,
                                      int64_t worker_id,
                                      const v1::CheckpointBegin& begin) {
  // Otherwise others may have trained on while it was read.
  const bool expected = saves_.state() == ServerCheckpoints::State::kSaving &&
                        saves_.saver() == worker_id &&
                        begin.step() == tasks_.step();
  if (!expected) {
    v1::MasterMessage message;
    message.mutable_ledger()->set_step(begin.step());
    return port_.Send({connection}, std::move(message));
  }
  OnCheckpointBegin(connection, begin);
  saves_.EndRead(begin.step());
  read_deadline_ = absl::InfiniteFuture();
  SendResume(now);
}

void JobController::EndServerSave(absl::Time now, int64_t worker_id,
                                  int64_t step) {
  const bool held = saves_.holds_training();
  saves_.End(worker_id, step);
  if (!saves_.holds_training()) read_deadline_ = absl::InfiniteFuture();
  if (held && !saves_.holds_training()) SendResume(now);
}

void JobController::CancelServerSave(absl::Time now) {
  if (!saves_.holds_training()) return;
  saves_.Cancel();
  read_deadline_ = absl::InfiniteFuture();
  SendResume(now);
}

void JobController::OnReadDeadline(absl::Time now) {
  read_deadline_ = absl::InfiniteFuture();
  if (saves_.state() != ServerCheckpoints::State::kSaving) return;
  const int64_t saver = saves_.saver();
  CancelServerSave(now);
  Evict(now, saver, WorkerLoss::kCrashed,
        "it does not get done with reading the model for a checkpoint");
}

void JobController::SendResume(absl::Time now) {
  // What is trained from here on would not be saved.
  if (BrokenOff()) return;
  tasks_.RestartClocks(now);
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
  if (versions_.open() || moves_.open()) return false;
  const auto& workers = registry_.workers();
  return std::all_of(workers.begin(), workers.end(), [this](const auto& entry) {
    return !entry.second.ready || entry.second.idle ||
           tasks_.NumHeld(entry.second.id, v1::TRAINING) == 0;
  });
}

}  // namespace elasticdl::master
